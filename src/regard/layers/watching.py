"""Whether someone looks into a module while it computes."""

from torch import nn
from torch.nn.modules import module as every_module


def nobody_watches(*modules: nn.Module) -> bool:
    """Say whether modules are no more than what they compute, so that they can be computed in another way."""
    return not every_module._has_any_global_hook() and not any(  # type: ignore[no-untyped-call]
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)  # one of its own, in place of its class's
        for module in modules
    )
