"""Which decoder runs: an accelerated one where every module of the model is known, else the generic one."""

from regard.acceleration.backend import Backend
from regard.acceleration.known import unknown_part
from regard.acceleration.known_classes import KERNEL_PARTS
from regard.acceleration.packed_decoder import PackedBackend
from regard.acceleration.packed_linear import DecodingPrecision
from regard.decoding.shortlist import Shortlist
from regard.errors import InputError
from regard.inference.cache_check import decodes_alike
from regard.inference.generic_decoder import GenericBackend
from regard.inference.uncached_decoder import UncachedBackend
from regard.layers.dropout_rates import dropout_rates
from regard.model import Transformer
from regard.model.own_forward import has_own_forward


def choose_backend(
    model: Transformer, precision: DecodingPrecision = "float", shortlist: Shortlist | None = None
) -> Backend:
    """Return the fastest backend that computes what the model computes.

    >>> import regard
    >>> config = regard.TransformerConfig.preset("tiny", vocab_size=99, bos_id=1, eos_id=2)
    >>> model = regard.Transformer(config).eval()
    >>> choose_backend(model).name
    'packed float32 decoder'
    >>> handle = model.output.register_forward_hook(lambda module, inputs, logits: -logits)
    >>> choose_backend(model).name
    'generic decoder (output has hooks)'
    """
    unknown = reason = unknown_part(model, KERNEL_PARTS)
    device = model.device
    if reason is None and drops_units(model):
        reason = "dropout is on; model.eval() turns it off"
    if reason is None and device.type != "cpu":
        reason = f"the model is on {device}"
    if reason is None:
        return PackedBackend(model, precision, shortlist)
    if precision == "int8":
        raise InputError(f"int8 decoding is for models whose every module is known: {reason}")
    fits_cache = unknown is None or (not has_own_forward(model) and decodes_alike(model))
    return (GenericBackend if fits_cache else UncachedBackend)(model, shortlist, reason=reason)


def drops_units(model: Transformer) -> bool:
    """Whether a part of a model drops units: one in training mode, with dropout.

    >>> import regard
    >>> model = regard.Transformer(regard.TransformerConfig.preset("tiny", vocab_size=99))
    >>> drops_units(model), drops_units(model.eval())
    (True, False)
    """
    return any(layer.training and rate > 0.0 for layer, _, rate in dropout_rates(model))
