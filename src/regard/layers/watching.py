"""Whether someone looks into a module while it computes."""

from torch import nn


def nobody_watches(*modules: nn.Module) -> bool:
    """Say whether modules are no more than what they compute, so that they can be computed in another way."""
    return not any(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
        for module in modules
    )
