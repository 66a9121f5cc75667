"""Pipelines for people who come from Hugging Face: called as those of transformers 4 were, over regard's own."""

from regard.hf_pipelines.factory import pipeline as pipeline
from regard.hf_pipelines.factory import set_seed as set_seed
