"""A padded batch without its padding: its real tokens one behind the other, as one row of sentences to the layers."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from regard.errors import InputError
from regard.kernels.bindings import LANES, can_compute
from regard.layers import Embedding, head_width
from regard.model.config import TransformerConfig
from regard.ops.masks import Mask, SameSentence, Sentences
from regard.ops.rng import keys_of_positions
from regard.ops.short import LONGEST


class Unpadded:
    """The tokens of a batch that are real, whatever lies between them."""

    def __init__(self, tokens_BT: Tensor, real_BT: Tensor) -> None:
        self._tokens_BT, T = tokens_BT, tokens_BT.size(1)
        places_R = real_BT.flatten().nonzero()[:, 0]
        self._tokens_R = tokens_BT.flatten()[places_R]
        self._rows_R, self._positions_R = places_R // T, places_R % T
        self._sentences = Sentences.of(real_BT.sum(1))

    def embedded(self, embedding: Embedding) -> Tensor:
        """Give their vectors (1, R, D), each at the position that it has in its sentence."""
        try:
            x_R1D: Tensor = embedding(self._tokens_R[:, None], self._positions_R)
        except InputError:
            embedding(self._tokens_BT)  # says where in the batch it is
            raise
        return x_R1D.transpose(0, 1)

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """Drop from them what would be dropped with the padding."""
        with keys_of_positions(self._rows_R, self._positions_R):
            yield

    def mask(self, other: "Unpadded | None" = None) -> Mask:
        """Let each see its own sentence, or what the other batch has for it."""
        return SameSentence(self._sentences, self._sentences if other is None else other._sentences)


def can_leave_out_padding(config: TransformerConfig, weight: Tensor, longest: int, *, training: bool) -> bool:
    """Say whether attention has a kernel for the sentences of such a model, one behind the other.

    Without it there would be scores of every sentence for every other.
    """
    heads = [head_width(config.d_model, config.num_heads, "", given) for given in (config.d_k, config.d_v)]
    widths = [*heads, config.d_model, config.d_ff or LANES]  # whole random words for each position, too
    return (
        config.kind == "encoder-decoder"
        and longest <= LONGEST
        and not (training and config.attention_dropout > 0.0)
        and all(width % LANES == 0 for width in widths)
        and can_compute(weight)
    )
