"""Whether a model's `forward` or `logits` are its own: then they say what it computes, and not the states alone."""

from torch import nn
from torch.nn.modules import module as torch_modules

from regard.model.transformer import Transformer

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def has_own_forward(model: nn.Module) -> bool:
    """Whether calling a model is more than `encode`, `decode` and `logits`: a `forward` of its own, or hooks on it.

    >>> import regard
    >>> model = regard.Transformer(regard.TransformerConfig.preset("tiny", vocab_size=9))
    >>> has_own_forward(model)
    False
    >>> handle = model.register_forward_hook(lambda *_: None)
    >>> has_own_forward(model)
    True
    """
    hooks = [hook for name in _HOOKS for hook in getattr(model, name).values()]
    if torch_modules._has_any_global_hook() or not all(map(is_fsdp_hook, hooks)):  # type: ignore[no-untyped-call]
        return True
    return not _is_plain(model, "forward") or type(model).__call__ is not nn.Module.__call__


def changes_logits(model: nn.Module) -> bool:
    """Whether the logits of a model are more than its output projection of its states."""
    return has_own_forward(model) or not _is_plain(model, "logits")


def _is_plain(model: nn.Module, name: str) -> bool:
    return getattr(type(model), name) is getattr(Transformer, name) and name not in vars(model)


def is_fsdp_hook(hook: object) -> bool:
    """Whether a hook is one of FSDP's, which change nothing."""
    return str(getattr(getattr(hook, "__func__", hook), "__module__", "")).startswith("torch.distributed")
