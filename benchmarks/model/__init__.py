"""A training step and the attention kernel, beside torch's and Hugging Face's."""
