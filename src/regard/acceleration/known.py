"""What a module computes: the one function that decides whether a module is one of ours, unchanged."""

import sys
from collections.abc import Mapping
from functools import cache
from operator import itemgetter
from types import FunctionType
from typing import Any, NamedTuple

from torch import nn
from torch.nn.modules import module as torch_modules

from regard import layers
from regard.layers.patterns import SlidingWindow
from regard.layers.positions import ALiBi, RotaryPositions, T5Bias
from regard.model import Transformer
from regard.model.transformer import plain_model
from regard.model.undescribed import REPLACES, undescribed_modules

_KNOWN: frozenset[type[nn.Module]] = frozenset(
    {
        layers.Decoder,
        layers.DecoderLayer,
        layers.Dropout,
        layers.Embedding,
        layers.Encoder,
        layers.EncoderLayer,
        layers.FactorizedOutputProjection,
        layers.FactorizedTokenEmbedding,
        layers.FeedForward,
        layers.LayerNorm,
        layers.LearnedPositions,
        layers.MultiHeadAttention,
        layers.OutputProjection,
        layers.RMSNorm,
        layers.Residual,
        layers.SharedLayers,
        layers.SinusoidalPositions,
        layers.TokenEmbedding,
        Transformer,
        nn.Linear,
        nn.ModuleList,
    }
)

KERNEL_PARTS: frozenset[type[nn.Module]] = frozenset({ALiBi, RotaryPositions, SlidingWindow, T5Bias})
"""The parts of attention that kernels know, in training and in packed layers."""

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
    if not methods.isdisjoint(vars(module)):
        return None
    if isinstance(module, layers.MultiHeadAttention) and _unknown_variations(module, parts):
        return None
    if torch_modules._has_any_global_hook():  # type: ignore[no-untyped-call]
        return None
    return cls if all(sharded and _is_fsdp_hook(hook) for hook in _hooks(module)) else None


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


class _Namespace(NamedTuple):
    """A class, a module or a dict of functions, with what it held when it was imported."""

    name: str
    known: type | None
    """A class that is known, or a base of one; of anything else, a change concerns all of them."""
    content: Mapping[str, Any]
    before: dict[str, Any]

    def changes(self) -> list[str]:
        """Return the names that hold something else now, and those that a class was given since."""
        changed = [name for name, value in self.before.items() if self.content.get(name) is not value]
        if self.known is None:
            return changed
        added = [name for name in self.content.keys() - self.before.keys() if not _is_pythons(name, self.content[name])]
        return changed + added


def _is_pythons(name: str, value: object) -> bool:
    """Whether an entry of a class is kept there by Python itself, `__slotnames__` for instance."""
    return name.startswith("__") and not callable(value)


def _is_ours(value: object) -> bool:
    """Whether a value is a function of regard's."""
    return isinstance(value, FunctionType) and value.__module__.startswith("regard.")


def _watched() -> list[_Namespace]:
    """Return the namespaces of everything that kernels stand for."""
    modules = {name: module for name, module in sys.modules.items() if name.startswith(("regard.layers", "regard.ops"))}
    found = [
        _Namespace(name, None, vars(module), {key: value for key, value in vars(module).items() if _is_ours(value)})
        for name, module in modules.items()
    ]
    for name, module in modules.items():
        for key, value in vars(module).items():
            if type(value) is dict and value and all(map(callable, value.values())):
                found.append(_Namespace(f"{name}.{key}", None, value, dict(value)))
    known = {base for cls in _KNOWN | KERNEL_PARTS for base in cls.__mro__ if base not in (nn.Module, object)}
    defined = {value for module in modules.values() for value in vars(module).values() if isinstance(value, type)}
    helpers = {cls for cls in defined if cls.__module__ in modules and not issubclass(cls, nn.Module)}
    for cls in known | helpers:
        content = {key: value for key, value in vars(cls).items() if not _is_pythons(key, value)}
        found.append(_Namespace(_name(cls), cls if cls in known else None, vars(cls), content))
    calls = {key: vars(nn.Module)[key] for key in ("__call__", "_wrapped_call_impl", "_call_impl", "__getattr__")}
    found.append(_Namespace(_name(nn.Module), None, vars(nn.Module), calls))
    return [namespace for namespace in found if namespace.before]


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


_WATCHED = _watched()
_READERS = [(itemgetter(*namespace.before), namespace.content) for namespace in _WATCHED]
_BEFORE = [read(content) for read, content in _READERS]
_CLASSES = [namespace.content for namespace in _WATCHED if namespace.known is not None]
_SIZES = list(map(len, _CLASSES))


_FORWARDS = [
    (content, name, content[name])
    for content in map(vars, _KNOWN)
    for name in ("forward", "encode", "decode", "logits", "attend", "heads")
    if name in content
]


def has_changed_forward() -> bool:
    """Whether a known class was given another forward pass: what takes no time to look at before each sentence."""
    return any(content.get(name) is not value for content, name, value in _FORWARDS)


_PLAIN_FORWARD = {cls: cls.forward for cls in _KNOWN}


def runs_as(module: nn.Module, cls: type[nn.Module]) -> bool:
    """Whether a module computes what a known class does, by its own forward pass: for use in every forward pass."""
    return _reference_type(module, frozenset(), set()) is cls and cls.forward is _PLAIN_FORWARD[cls]


def changed_classes() -> set[type[nn.Module]]:
    """Return the known classes that compute something else than when they were imported.

    They, or bases of theirs, were given other methods. Where a function was replaced that they call, or the methods of
    what they use, it is all of them.
    """
    return set() if _is_as_imported() else _changes()[0]


def _is_as_imported() -> bool:
    """Whether nothing was replaced; of classes that were given something, `_changes` tells."""
    try:
        return [read(content) for read, content in _READERS] == _BEFORE and list(map(len, _CLASSES)) == _SIZES
    except KeyError:
        return False


def _changes() -> tuple[set[type[nn.Module]], str | None]:
    """Return the known classes that were changed, and the name of what was replaced where it is all of them."""
    every = set(_KNOWN | KERNEL_PARTS)
    changed: set[type[nn.Module]] = set()
    for namespace in _WATCHED:
        names = namespace.changes()
        if names and namespace.known is None:
            return every, f"{namespace.name}.{names[0]}"
        if names:
            changed |= {cls for cls in every if namespace.known is not None and issubclass(cls, namespace.known)}
    if not changed:
        _SIZES[:] = map(len, _CLASSES)
    return changed, None


def _unknown_variations(layer: layers.MultiHeadAttention, parts: frozenset[type[nn.Module]]) -> list[str]:
    """Return the names of what varies attention and is not in `parts`; who knows any parts knows numbers as scales."""
    known = [name for name in ("positions", "pattern", "kind") if type(getattr(layer, name)) in parts]
    if parts and isinstance(layer.scale, int | float):
        known.append("scale")
    return [name for name in layer.variations() if name not in known]


def _difference(module: nn.Module, parts: frozenset[type[nn.Module]] = frozenset()) -> str:
    cls, _ = _without_fsdp(type(module))
    if REFERENCES.get(cls, cls) not in _KNOWN | parts:
        return f"is a {_name(cls)}"
    if own := sorted(_methods(cls) & vars(module).keys()):
        return f"has a {own[0]} of its own"
    if isinstance(module, layers.MultiHeadAttention) and (names := _unknown_variations(module, parts)):
        return f"varies attention ({', '.join(names)})"
    changed, replaced = _changes()
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
    return (plain, _methods(plain), sharded) if plain in _KNOWN | parts else None


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


def _is_fsdp_hook(hook: object) -> bool:
    origin = getattr(hook, "__func__", hook)
    return str(getattr(origin, "__module__", "")).startswith("torch.distributed")
