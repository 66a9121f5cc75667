"""The error of functions without second derivatives."""

import torch

from regard.errors import InputError


def refuse_second_derivatives(name: str, instead: str) -> None:
    """Raise an `InputError` in the backward pass if a function is asked for gradients of its gradients and has none.

    torch's own mark for such functions lets them be zero without a word, where the gradient that came is a constant.
    """
    if torch.is_grad_enabled():  # in the backward pass it is, if a graph of the gradients is to be made
        raise InputError(f"{name} has no second derivatives (create_graph=True); {instead} has them")
