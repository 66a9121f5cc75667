"""The model as it is written, without kernels, beside torch's and Hugging Face's."""
