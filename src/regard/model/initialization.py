"""The weights that training starts from, chosen so that deep stacks train from the first step."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.layers import Decoder, Encoder, FeedForward, MultiHeadAttention

_BRANCHES = (MultiHeadAttention, FeedForward)


def initialize(model: nn.Module) -> None:
    """Draw every projection so that signals keep their size, and residual branches so that depth does not matter.

    Projections are Xavier-uniform with zero biases. What a sublayer adds to the residual stream is scaled by one over
    the root of how many sublayers there are, so that all of them together add about as much as the stream itself, at
    any depth, and gradients reach the first layer as large as the last.
    Embeddings draw themselves with a deviation of 1/√d_model, which the paper's √d_model brings to 1.
    """
    for stack in model.modules():
        if isinstance(stack, Encoder | Decoder):
            # By depth: a layer that is applied several times adds to the residual stream as often.
            branches = [m for layer in stack.layers for m in layer.modules() if isinstance(m, _BRANCHES)]
            for branch in dict.fromkeys(branches):
                _draw(branch, residual_gain=len(branches) ** -0.5)


class NoInitialization(TorchFunctionMode):
    """A context in which parameters are not initialized: they are all read from a file next. Buffers may not be."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Leave parameters that would be initialized as they are in memory."""
        kwargs = kwargs or {}
        # Some functions of nn.init come here themselves, of others what they call.
        if getattr(func, "__module__", None) == nn.init.__name__ or func in (Tensor.uniform_, Tensor.normal_):
            tensor = args[0] if args else kwargs["tensor"]
            if isinstance(tensor, nn.Parameter) or tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


def _draw(branch: MultiHeadAttention | FeedForward, residual_gain: float) -> None:
    into_residual = branch.output if isinstance(branch, MultiHeadAttention) else branch.contract
    for projection in branch.children():
        if isinstance(projection, nn.Linear):
            nn.init.xavier_uniform_(projection.weight, gain=residual_gain if projection is into_residual else 1.0)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
