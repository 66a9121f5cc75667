"""regard: a Transformer that people can read, train, look inside and put to work.

Importing it is cheap: torch is loaded when a name that needs it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from regard import export as export
    from regard import inspection as inspection
    from regard import layers as layers
    from regard import models as models
    from regard import ops as ops
    from regard import recipes as recipes
    from regard import tasks as tasks
    from regard.acceleration.accelerate import accelerate as accelerate
    from regard.acceleration.accelerate import unaccelerate as unaccelerate
    from regard.errors import ConfigError as ConfigError
    from regard.errors import InputError as InputError
    from regard.errors import ModelError as ModelError
    from regard.errors import RegardError as RegardError
    from regard.hf_pipelines import pipeline as pipeline
    from regard.hf_pipelines import set_seed as set_seed
    from regard.inference.pipeline import Pipeline as Pipeline
    from regard.layers import MultiHeadAttention as MultiHeadAttention
    from regard.model import Transformer as Transformer
    from regard.model import TransformerConfig as TransformerConfig
    from regard.ops import attention as attention
    from regard.ops import causal_mask as causal_mask
    from regard.ops import label_smoothed_cross_entropy as label_smoothed_cross_entropy
    from regard.ops import padding_mask as padding_mask
    from regard.ops import sinusoidal_positions as sinusoidal_positions
    from regard.pipelines import load as load
    from regard.tasks.translation import Translator as Translator
    from regard.tasks.translation_result import Translation as Translation
    from regard.training import train as train

_HOME = {
    "ConfigError": "regard.errors",
    "InputError": "regard.errors",
    "ModelError": "regard.errors",
    "MultiHeadAttention": "regard.layers",
    "Pipeline": "regard.inference.pipeline",
    "RegardError": "regard.errors",
    "Transformer": "regard.model",
    "accelerate": "regard.acceleration.accelerate",
    "unaccelerate": "regard.acceleration.accelerate",
    "TransformerConfig": "regard.model",
    "Translation": "regard.tasks.translation_result",
    "Translator": "regard.tasks.translation",
    "attention": "regard.ops",
    "causal_mask": "regard.ops",
    "label_smoothed_cross_entropy": "regard.ops",
    "load": "regard.pipelines",
    "padding_mask": "regard.ops",
    "pipeline": "regard.hf_pipelines",
    "set_seed": "regard.hf_pipelines",
    "sinusoidal_positions": "regard.ops",
    "train": "regard.training",
}

_PACKAGES = ("export", "inspection", "layers", "models", "ops", "recipes", "tasks")
"""Packages that are imported when they are first used."""

__all__ = sorted([*_HOME, *_PACKAGES])


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return import_module(f"regard.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
