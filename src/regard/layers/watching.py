"""Whether someone looks into a module while it computes."""

from torch import nn
from torch.nn.modules import module as every_module


def nobody_watches(*modules: nn.Module) -> bool:
    """Say whether modules are no more than what they compute, so that they can be computed in another way."""
    return not _all_are_watched() and not any(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)  # one of its own, in place of its class's
        for module in modules
    )


def _all_are_watched() -> bool:
    hooks = every_module
    return bool(
        hooks._global_forward_hooks
        or hooks._global_forward_pre_hooks
        or hooks._global_backward_hooks
        or hooks._global_backward_pre_hooks
    )
