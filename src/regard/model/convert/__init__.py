"""Conversion of models from other libraries: the same weights give the same logits."""

from regard.model.convert.huggingface import from_huggingface as from_huggingface
from regard.model.convert.huggingface import read_huggingface_directory as read_huggingface_directory
from regard.model.convert.torch_transformer import from_torch_transformer as from_torch_transformer
