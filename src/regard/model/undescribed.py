"""Differences between a model and its configuration: custom modules, methods, hooks and settings."""

from torch import nn

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_TRAINING = frozenset({"training", "rate", "dropout"})  # they change no function of a trained model
_NOTHING = object()


def undescribed_modules(model: nn.Module, plain: nn.Module) -> tuple[str, ...]:
    """Return the classes of modules that differ from those of a plain model of the same configuration, with what does.

    A class that is not regard's is reported by name; its submodules are not inspected. (Of torch's
    classes, regard's layers use `Linear` and `ModuleList`.) `plain` may be on the meta device.

    >>> import regard
    >>> model, plain = (regard.Transformer(regard.TransformerConfig.preset("tiny", vocab_size=9)) for _ in range(2))
    >>> undescribed_modules(model, plain)
    ()
    >>> model.encoder.layers[0].feed_forward.activation = "gelu"
    >>> undescribed_modules(model, plain)
    ("regard.layers.feed_forward.FeedForward (its activation is 'gelu')",)
    """
    expected = dict(plain.named_modules())
    found, foreign = set(), ["\0"]
    for name, module in model.named_modules():
        other = expected.pop(name, None)
        if not _is_ours(type(module)):
            found.add(_name(module))
            foreign.append(f"{name}." if name else "")
        elif not name.startswith(tuple(foreign)) and (reason := _difference(module, other)):
            found.add(f"{_name(module)} ({reason})")
    left_out = {_name(other) for name, other in expected.items() if not name.startswith(tuple(foreign))}
    return tuple(sorted(found | {f"{name} (one is left out)" for name in left_out}))


def _is_ours(cls: type[nn.Module]) -> bool:
    return cls in (nn.Linear, nn.ModuleList) or cls.__module__.partition(".")[0] == "regard"


def _name(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _difference(module: nn.Module, other: nn.Module | None) -> str | None:
    """Return how a module differs from that of the plain model; a replacement of `regard.accelerate` does not."""
    if other is None:
        return "one more than in its configuration"
    if not isinstance(module, type(other)):
        return f"in place of a {type(other).__name__}"
    own = sorted(name for name in vars(module) if callable(getattr(type(module), name, None)))
    if own:
        return f"has a {own[0]} of its own"
    if any(getattr(module, name) for name in _HOOKS):
        return "has hooks"
    for name, value in vars(other).items():
        if name.startswith("_") or name in _OF_TRAINING or not _is_setting(value):
            continue
        if (changed := vars(module).get(name, _NOTHING)) != value:
            return f"its {name} is {'gone' if changed is _NOTHING else repr(changed)}"
    return None


def _is_setting(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | tuple | list)
