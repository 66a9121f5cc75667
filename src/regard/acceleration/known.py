"""What a module computes: the one function that decides whether a module is one of ours, unchanged."""

from functools import cache

from torch import nn
from torch.nn.modules import module as torch_modules

from regard import layers
from regard.acceleration.changed_classes import changed_classes, changes, class_name, has_plain_method
from regard.acceleration.known_classes import KNOWN
from regard.model import Transformer
from regard.model.own_forward import is_fsdp_hook
from regard.model.transformer import plain_model
from regard.model.undescribed import REPLACES, is_plain_parameter, undescribed_modules

REFERENCES: dict[type[nn.Module], type[nn.Module]] = {}
"""The plain class that each replacement stands for."""


def register_replacement(replacement: type[nn.Module]) -> type[nn.Module]:
    """Declare a class as a replacement of its base, which computes the same (a class decorator)."""
    (reference,) = replacement.__bases__
    REFERENCES[replacement] = REFERENCES.get(reference, reference)
    setattr(replacement, REPLACES, REFERENCES[replacement])
    return replacement


def reference_type(module: nn.Module, parts: frozenset[type[nn.Module]] = frozenset()) -> type[nn.Module] | None:
    """Return the plain class that tells what a module computes, or None if it may compute anything else.

    It sees through our own replacements and through FSDP's wrapper. A subclass, a hook, a parametrization or a
    `forward`, or any other method, of the instance's own is something else; so is a class that was changed, and
    attention with parts that vary it, but for those of the classes in `parts`, which the caller knows.

    >>> from torch import nn
    >>> reference_type(nn.Linear(2, 3)) is nn.Linear
    True
    >>> layer = nn.Linear(2, 3)
    >>> handle = layer.register_forward_hook(lambda *_: None)
    >>> reference_type(layer) is None
    True
    """
    return _reference_type(module, parts, changed_classes())


def _reference_type(
    module: nn.Module, parts: frozenset[type[nn.Module]], changed: set[type[nn.Module]]
) -> type[nn.Module] | None:
    known = _known(type(module), parts)  # type: ignore[arg-type]  # a class is hashable
    if known is None or known[0] in changed:
        return None
    cls, methods, sharded = known
    if not methods.isdisjoint(vars(module)) or not all(map(is_plain_parameter, module._parameters.values())):
        return None
    if isinstance(module, layers.MultiHeadAttention) and _unknown_variations(module, parts):
        return None
    if torch_modules._has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    return cls if all(sharded and is_fsdp_hook(hook) for hook in _hooks(module)) else None


def unknown_module(model: nn.Module, parts: frozenset[type[nn.Module]] = frozenset()) -> str | None:
    """Return a description of the first module that is not one of ours, unchanged; None if all are.

    >>> from torch import nn
    >>> unknown_module(nn.ModuleList([nn.Linear(2, 2), nn.Identity()]))
    '1 is a torch.nn.modules.linear.Identity'
    """
    changed = changed_classes()
    for name, module in model.named_modules():
        if _reference_type(module, parts, changed) is None:
            return f"{name or 'the model'} {_difference(module, parts)}"
    return None


def unknown_part(model: Transformer, parts: frozenset[type[nn.Module]] = frozenset()) -> str | None:
    """Return a description of the first part of a model that is not known, or not as its configuration has it.

    >>> import regard
    >>> model = regard.Transformer(regard.TransformerConfig.preset("tiny", vocab_size=99))
    >>> model.decoder.layers[0].cross_attention = None
    >>> unknown_part(model)
    'the model has a regard.layers.attention.MultiHeadAttention (one is left out)'
    """
    if (reason := unknown_module(model, parts)) is not None:
        return reason
    undescribed = undescribed_modules(model, plain_model(model.config))
    return f"the model has a {undescribed[0]}" if undescribed else None


def runs_as(module: nn.Module, cls: type[nn.Module]) -> bool:
    """Whether a module computes what a known class does, by its own forward pass: for use in every forward pass."""
    return _reference_type(module, frozenset(), set()) is cls and has_plain_method(cls, "forward")


def _unknown_variations(layer: layers.MultiHeadAttention, parts: frozenset[type[nn.Module]]) -> list[str]:
    """Return the names of what varies attention and is not in `parts`; who knows any parts knows numbers as scales."""
    known = [name for name in ("positions", "pattern", "kind") if type(getattr(layer, name)) in parts]
    if parts and isinstance(layer.scale, int | float):
        known.append("scale")
    return [name for name in layer.variations() if name not in known]


def _difference(module: nn.Module, parts: frozenset[type[nn.Module]] = frozenset()) -> str:
    cls, _ = _without_fsdp(type(module))
    if REFERENCES.get(cls, cls) not in KNOWN | parts:
        return f"is a {class_name(cls)}"
    if own := sorted(_methods(cls) & vars(module).keys()):
        return f"has a {own[0]} of its own"
    for name, parameter in module._parameters.items():
        if not is_plain_parameter(parameter):
            return f"has a {type(parameter).__name__} as its {name}"
    if isinstance(module, layers.MultiHeadAttention) and (names := _unknown_variations(module, parts)):
        return f"varies attention ({', '.join(names)})"
    changed, replaced = changes()
    if replaced is not None:
        return f"uses {replaced}, which was replaced"
    if (plain := REFERENCES.get(cls, cls)) in changed:
        return f"is a {plain.__qualname__}, a class that was changed"
    return "has hooks"


@cache
def _known(
    cls: type[nn.Module], parts: frozenset[type[nn.Module]]
) -> tuple[type[nn.Module], frozenset[str], bool] | None:
    """Return the plain class behind a class that is known, the names of its methods, and whether FSDP wraps it."""
    plain, sharded = _without_fsdp(cls)
    plain = REFERENCES.get(plain, plain)
    return (plain, _methods(plain), sharded) if plain in KNOWN | parts else None


def _methods(cls: type[nn.Module]) -> frozenset[str]:
    return frozenset(name for name in dir(cls) if callable(getattr(cls, name)))


def is_sharded(module: nn.Module) -> bool:
    """Whether a module is in FSDP2's wrapper."""
    return _without_fsdp(type(module))[1]


def _without_fsdp(cls: type) -> tuple[type, bool]:
    """Return the class behind FSDP2's wrapper, and whether there is one."""
    if cls.__name__.startswith("FSDP") and cls.__module__.startswith("torch.distributed.fsdp"):
        return cls.__bases__[-1], True
    if cls.__name__.startswith("FSDP") and len(cls.__bases__) == 2 and cls.__bases__[0].__name__ == "FSDPModule":
        return cls.__bases__[1], True
    return cls, False


def _hooks(module: nn.Module) -> list[object]:
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return [hook for some in hooks if some for hook in some.values()]
