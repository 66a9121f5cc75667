"""Switches: each leaves one kernel out, for as long as its context lasts."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from torch import nn

from regard.acceleration import fused_loss, packed_embedding, packed_linear, sgemm
from regard.acceleration.attention import KernelAttention
from regard.acceleration.kernel_layers import KernelStack
from regard.acceleration.linear import Int8Linear, SgemmLinear
from regard.acceleration.output_projection import (
    FusedOutputProjection,
    Int8SampledOutputProjection,
    SampledOutputProjection,
)
from regard.acceleration.residual import FusedResidual
from regard.decoding.candidates import TorchSelector
from regard.inference import decode
from regard.layers import MultiHeadAttention, Residual
from regard.training import examples

Classes = dict[type[nn.Module], type[nn.Module]]
Switch = Callable[[nn.Module], AbstractContextManager[Any]]


def replaced(classes: Classes) -> Switch:
    """Give modules of some classes other ones."""

    @contextmanager
    def switched(model: nn.Module) -> Iterator[None]:
        changed = [(module, type(module)) for module in model.modules() if type(module) in classes]
        for module, kind in changed:
            module.__class__ = classes[kind]
        try:
            yield
        finally:
            for module, kind in changed:
                module.__class__ = kind

    return switched


def patched(place: Any, name: str, value: Any) -> Switch:
    """Give a module of Python another function."""
    return lambda model: patch.object(place, name, value)


TRAINING: dict[str, Switch] = {
    "short-sequence attention (and batches without padding)": replaced({KernelAttention: MultiHeadAttention}),
    "add and norm": replaced({FusedResidual: Residual}),
    "sgemm": patched(sgemm, "_is_faster", lambda: False),
    "negative log-likelihood": patched(fused_loss, "can_compute", lambda *_: False),
}
INT8_TRAINING: dict[str, Switch] = {
    **{name: switch for name, switch in TRAINING.items() if name not in ("sgemm", "negative log-likelihood")},
    "int8 matmul and quantization": replaced(
        {Int8Linear: SgemmLinear, Int8SampledOutputProjection: SampledOutputProjection}
    ),
    "sampled loss": replaced({Int8SampledOutputProjection: FusedOutputProjection}),
}
DECODING: dict[str, Switch] = {
    "packed layers in one call": patched(KernelStack, "of", lambda *_: None),
    "packed layers and int8 linear": patched(packed_linear, "KernelInt8Linear", packed_linear.TorchInt8Linear),
    "log-softmax and candidates": patched(decode, "candidate_selector", TorchSelector),
    "embedding": patched(packed_embedding, "kernels", lambda: None),
}
FLOAT_DECODING = {name: DECODING[name] for name in ("log-softmax and candidates", "embedding")}
SUBWORD_DROPOUT = {"subword dropout": patched(examples, "subword_cut", lambda: None)}
