"""The weights that training starts from, chosen so that deep stacks train from the first step."""

from torch import nn

from regard.layers import Decoder, Encoder, FeedForward, MultiHeadAttention


def initialize(model: nn.Module) -> None:
    """Draw every projection so that signals keep their size, and residual branches so that depth does not matter.

    Projections are Xavier-uniform with zero biases. What a sublayer adds to the residual stream is scaled by one over
    the root of how many sublayers there are, so that all of them together add about as much as the stream itself, at
    any depth, and gradients reach the first layer as large as the last.
    Embeddings draw themselves with a deviation of 1/√d_model, which the paper's √d_model brings to 1.
    """
    for stack in model.modules():
        if isinstance(stack, Encoder | Decoder):
            branches = [m for m in stack.modules() if isinstance(m, MultiHeadAttention | FeedForward)]
            for branch in branches:
                _draw(branch, residual_gain=len(branches) ** -0.5)


def _draw(branch: MultiHeadAttention | FeedForward, residual_gain: float) -> None:
    into_residual = branch.output if isinstance(branch, MultiHeadAttention) else branch.contract
    for projection in branch.children():
        if isinstance(projection, nn.Linear):
            nn.init.xavier_uniform_(projection.weight, gain=residual_gain if projection is into_residual else 1.0)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
