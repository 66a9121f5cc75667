"""Pipelines with the interface of those of transformers 4, over regard's own."""

from regard.hf_pipelines.factory import pipeline as pipeline
from regard.hf_pipelines.factory import set_seed as set_seed
