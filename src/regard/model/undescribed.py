"""Differences between a model and its configuration: custom modules, methods, hooks, settings and weight tying."""

from collections.abc import Collection

from torch import nn

from regard.errors import shown
from regard.layers import MultiHeadAttention, SinusoidalPositions
from regard.layers.kinds import PerformerAttention
from regard.layers.patterns import BlockSparse
from regard.layers.positions.absolute import is_close

REPLACES = "_regard_replaces"
"""The attribute by which a replacement's class names the plain class that it computes the same as."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_TRAINING = frozenset({"training", "rate", "dropout"})  # they change no function of a trained model
_NOTHING = object()
_HAVE_BUFFERS = (BlockSparse, PerformerAttention, SinusoidalPositions)


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
    expected = dict(plain.named_modules(remove_duplicate=False))
    found, foreign = set(), ["\0"]
    for name, module in model.named_modules(remove_duplicate=False):
        other = expected.pop(name, None)
        if not _is_ours(_plain_class(module)):
            found.add(_name(module))
            foreign.append(f"{name}." if name else "")
        elif not name.startswith(tuple(foreign)) and (reason := _difference(module, other)):
            found.add(f"{_name(module)} ({reason})")
    left_out = {_name(other) for name, other in expected.items() if not name.startswith(tuple(foreign))}
    found |= {f"{name} (one is left out)" for name in left_out}
    return tuple(sorted(found | _tied_otherwise(model, plain, tuple(foreign))))


def lost_variations(model: nn.Module, plain: nn.Module) -> list[str]:
    """Return what attention layers of other classes lack of what the configuration gives them, a sentence each.

    >>> import regard
    >>> config = regard.TransformerConfig.preset("tiny", vocab_size=9, positions="rope")
    >>> model, plain = regard.Transformer(config), regard.Transformer(config)
    >>> class Mine(regard.MultiHeadAttention):
    ...     pass
    >>> model.decoder.layers[0].self_attention = Mine(config.d_model, config.num_heads)
    >>> lost_variations(model, plain)
    ["decoder.layers.0.self_attention is a Mine without its configuration's positions; Mine.like(layer) keeps them"]
    """
    found, expected = dict(model.named_modules()), dict(plain.named_modules())
    lines = []
    for name, layer in expected.items():
        other = found.get(name)
        if not isinstance(layer, MultiHeadAttention) or not isinstance(other, MultiHeadAttention):
            continue
        if type(other) is not type(layer) and (lost := [v for v in layer.variations() if v not in other.variations()]):
            cls = type(other).__name__
            lines.append(
                f"{name} is a {cls} without its configuration's {' and '.join(lost)}; {cls}.like(layer) keeps them"
            )
    return lines


def same_names(one: Collection[str], other: Collection[str]) -> bool:
    """Whether two lists name the same classes: a script is `__main__` where it runs, and not where it is imported.

    >>> same_names(["__main__.Doubled"], ["experiment.Doubled"])
    True
    """

    def is_like(name: str, another: str) -> bool:
        pair = ((name, another), (another, name))
        return name == another or any(a.startswith("__main__.") and b.endswith(a[len("__main__") :]) for a, b in pair)

    return all(any(is_like(name, another) for another in other) for name in one) and all(
        any(is_like(name, another) for another in one) for name in other
    )


def is_plain_parameter(parameter: nn.Parameter | None) -> bool:
    """Whether a parameter is torch's own, perhaps distributed by FSDP: a subclass may change what is computed."""
    cls = type(parameter)
    return parameter is None or cls is nn.Parameter or cls.__module__.startswith("torch.distributed")


def _plain_class(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module, or the one that it replaces: for this class alone, not for subclasses of it."""
    cls = type(module)
    plain: type[nn.Module] = vars(cls).get(REPLACES, cls)
    return plain


def _is_ours(cls: type[nn.Module]) -> bool:
    return cls in (nn.Linear, nn.ModuleList) or cls.__module__.partition(".")[0] == "regard"


def _name(module: nn.Module) -> str:
    cls = _plain_class(module)
    return f"{cls.__module__}.{cls.__qualname__}"


def _difference(module: nn.Module, other: nn.Module | None) -> str | None:
    """Return how a module differs from that of the plain model; a replacement of `regard.accelerate` does not."""
    if other is None:
        return "one more than in its configuration"
    if _plain_class(module) is not type(other):
        return f"in place of a {type(other).__name__}"
    own = sorted(name for name in vars(module) if callable(getattr(type(module), name, None)))
    if own:
        return f"has a {own[0]} of its own"
    if any(getattr(module, name) for name in _HOOKS):
        return "has hooks"
    for name in sorted(module._parameters.keys() | other._parameters.keys()):
        parameter = module._parameters.get(name)
        has, should = (one is not None for one in (parameter, other._parameters.get(name)))
        if has != should:
            return f"has {'a' if has else 'no'} {name}"
        if not is_plain_parameter(parameter):
            return f"its {name} is a {type(parameter).__name__}"
    return _changed_buffer(module) or _changed_setting(module, other)


def _changed_buffer(module: nn.Module) -> str | None:
    """Return the first buffer of a layer that does not hold what the layer computes for it."""
    expected = module.expected_buffers() if isinstance(module, _HAVE_BUFFERS) else {}
    for name, values in expected.items():
        found = module.get_buffer(name)
        if not found.is_meta and not is_close(found, values):
            return f"its {name} was changed"
    return None


def _changed_setting(module: nn.Module, other: nn.Module) -> str | None:
    """Return the first setting that differs; an attribute of an instance may shadow a setting of its class."""
    for name in sorted(vars(module).keys() | vars(other).keys()):
        expected = vars(other).get(name, getattr(type(other), name, _NOTHING))
        if name.startswith("_") or name in _OF_TRAINING or not _is_setting(expected):
            continue
        found = getattr(module, name, _NOTHING)
        if not _is_setting(found):  # whose repr may differ from one process to the next
            return f"its {name} is {'gone' if found is _NOTHING else f'a {type(found).__name__}'}"
        if found != expected:
            return f"its {name} is {shown(found)}"
    return None


def _is_setting(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | tuple | list)


def _tied_otherwise(model: nn.Module, plain: nn.Module, foreign: tuple[str, ...]) -> set[str]:
    """Return the classes with a parameter that is one with other parameters than in the plain model."""
    both = _parameters(model).keys() & _parameters(plain).keys()
    inspected = sorted(name for name in both if not name.startswith(foreign))
    names, expected = _names_by_name(model, inspected), _names_by_name(plain, inspected)
    found: dict[tuple[str, str], str] = {}
    for name in inspected:
        if names[name] != expected[name]:
            place, _, parameter = name.rpartition(".")
            cls = _name(model.get_submodule(place))
            more, fewer = (sorted(a[name] - b[name]) for a, b in ((names, expected), (expected, names)))
            said = f"also {more[0]}" if more else f"not also {fewer[0]}"
            found.setdefault((cls, parameter), f"{cls} (its {parameter} is {said})")
    return set(found.values())


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    return dict(model.named_parameters(remove_duplicate=False))


def _names_by_name(model: nn.Module, inspected: list[str]) -> dict[str, set[str]]:
    """Return for each name of a parameter all names of the same one."""
    parameters, names = _parameters(model), dict[nn.Parameter, set[str]]()
    for name in inspected:
        names.setdefault(parameters[name], set()).add(name)
    return {name: names[parameters[name]] for name in inspected}
