"""Speed by replacement: known modules change their class, in place, to one that computes the same by kernels."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from torch import nn

from regard.acceleration.attention import KernelAttention
from regard.acceleration.known import (
    REFERENCES,
    is_sharded,
    reference_type,
    unknown_module,
)
from regard.acceleration.known_classes import KERNEL_PARTS
from regard.acceleration.linear import Int8Linear, SgemmLinear
from regard.acceleration.output_projection import (
    FusedFactorizedOutputProjection,
    FusedOutputProjection,
    Int8SampledOutputProjection,
    SampledOutputProjection,
)
from regard.acceleration.residual import FusedResidual
from regard.errors import InputError
from regard.kernels.bindings import kernels
from regard.layers import FactorizedOutputProjection, Head, MultiHeadAttention, OutputProjection, Residual

Precision = Literal["float64", "float32", "bfloat16", "float16", "int8"]


@dataclass
class Report:
    """What `accelerate` did."""

    replaced: dict[str, list[str]] = field(default_factory=dict)
    """The names of the modules that were replaced, by the name of their new class."""
    left: dict[str, str] = field(default_factory=dict)
    """The modules that stay as they are although there is a replacement, and why."""

    def __str__(self) -> str:
        done = ", ".join(f"{len(names)} {name}" for name, names in self.replaced.items()) or "nothing"
        kept = "; ".join(f"{name} {reason}" for name, reason in self.left.items())
        return f"replaced {done}" + (f"; left: {kept}" if kept else "")


def accelerate(
    model: nn.Module,
    *,
    precision: Precision = "float32",
    softmax_gradient: Literal["exact", "sampled"] = "exact",
) -> Report:
    """Replace the modules of a model that kernels can compute, for training; return a report.

    >>> import regard
    >>> model = regard.Transformer(regard.TransformerConfig.preset("tiny", vocab_size=99))
    >>> report = accelerate(model, precision="int8")
    >>> unaccelerate(model)
    >>> type(model.output).__name__
    'OutputProjection'

    A replacement is a subclass with the same parameters and the same function: the object, its parameters, its hooks
    and tied weights stay, state dicts are the same, and `unaccelerate` reverses it. With "int8", linear layers round
    what they multiply while they train. Modules that are not known (a subclass, a module with hooks) stay as they are,
    and so do heads.
    """
    if precision not in get_args(Precision):
        raise InputError(f"precision is {precision!r}; it is one of {', '.join(get_args(Precision))}")
    if softmax_gradient not in ("exact", "sampled"):
        raise InputError(f"softmax_gradient is {softmax_gradient!r}; it is exact or sampled")
    report = Report()
    replacements = _replacements(precision, softmax_gradient)
    heads = {name: module for name, module in model.named_modules() if isinstance(module, Head)}
    report.left |= {name or "the model": "is a head, a small part of the work" for name in heads}
    plain = {part for head in heads.values() for part in head.modules()}
    for name, module in model.named_modules():
        if module in plain:
            continue
        if type(module) in REFERENCES:  # replaced before, perhaps for another precision
            module.__class__ = REFERENCES[type(module)]
        reference = reference_type(module, KERNEL_PARTS)
        if reference is None and any(isinstance(module, base) for base in replacements):
            report.left[name or "the model"] = (unknown_module(module, KERNEL_PARTS) or "").removeprefix("the model ")
        elif reference in replacements and is_sharded(module):
            report.left[name or "the model"] = "is sharded already: accelerate comes before fully_shard"
        elif reference in replacements:
            module.__class__ = replacements[reference]
            report.replaced.setdefault(replacements[reference].__name__, []).append(name)
    return report


def unaccelerate(model: nn.Module) -> None:
    """Return every module that `accelerate` replaced its plain class again."""
    for name, module in model.named_modules():
        if is_sharded(module) and any(base in REFERENCES for base in type(module).__mro__):
            raise InputError(f"{name or 'the model'} is sharded; unaccelerate comes before fully_shard")
    for module in model.modules():
        if type(module) in REFERENCES:
            module.__class__ = REFERENCES[type(module)]


def _replacements(precision: Precision, softmax_gradient: str) -> dict[type[nn.Module], type[nn.Module]]:
    found: dict[type[nn.Module], type[nn.Module]] = {}
    if softmax_gradient == "sampled":
        found[OutputProjection] = Int8SampledOutputProjection if precision == "int8" else SampledOutputProjection
    else:
        found[OutputProjection] = FusedOutputProjection
    found[FactorizedOutputProjection] = FusedFactorizedOutputProjection  # whose gradient is exact
    if precision == "int8":
        found[nn.Linear] = Int8Linear
    if kernels() is not None:
        found |= {MultiHeadAttention: KernelAttention, Residual: FusedResidual}
        if precision == "float32":
            found[nn.Linear] = SgemmLinear
    return found
