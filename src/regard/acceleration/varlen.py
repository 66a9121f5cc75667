"""Batches without padding: the tokens of all sequences in one row, as variable-length attention kernels take them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.acceleration.known import REFERENCES, unknown_module
from regard.errors import InputError
from regard.kernels.bindings import LANES
from regard.kernels.dispatch import can_compute
from regard.layers import Embedding, MultiHeadAttention, head_width
from regard.layers.embeddings import check_tokens
from regard.model import Transformer
from regard.ops.masks import And, Causal, Mask
from regard.ops.rng import keys_by_position

MAX_LENGTH = 64
"""How many queries and keys of a sequence the attention kernel takes; of more, torch is as fast."""


@dataclass(frozen=True)
class Sequences:
    """Sequences behind one another in one row: the b-th is at cu_seqlens[b] up to cu_seqlens[b + 1]."""

    cu_seqlens: Tensor
    max_seqlen: int

    @classmethod
    def of(cls, lengths_B: Tensor) -> "Sequences":
        """Return the sequences of these lengths."""
        lengths_B = lengths_B.long()
        cu_seqlens = torch.cat([lengths_B.new_zeros(1), lengths_B.cumsum(0)])
        return cls(cu_seqlens, int(lengths_B.max()) if lengths_B.numel() else 0)

    def __len__(self) -> int:
        return self.cu_seqlens.size(0) - 1

    @property
    def size(self) -> int:
        """How long the row is that they make up."""
        return int(self.cu_seqlens[-1])

    def numbers(self) -> Tensor:
        """Return the number of the sequence that each position is in."""
        return torch.arange(len(self), device=self.cu_seqlens.device).repeat_interleave(self.cu_seqlens.diff())


@dataclass(frozen=True)
class SameSequence(Mask):
    """A query attends to the keys of its own sequence.

    >>> halves = Sequences.of(torch.tensor([1, 2]))
    >>> SameSequence(halves, halves).dense(3, 3).int()
    tensor([[1, 0, 0],
            [0, 1, 1],
            [0, 1, 1]], dtype=torch.int32)
    """

    queries: Sequences
    keys: Sequences

    def dense(self, T: int, S: int, device: torch.device | None = None) -> Tensor:
        """Return (T, S), blocks along the diagonal."""
        return (self.queries.numbers()[:, None] == self.keys.numbers()).to(device)

    def check(self, BHTS: tuple[int, ...], device: torch.device) -> None:
        """Raise an `InputError` unless the sequences make up the one row that there is."""
        B, _, T, S = BHTS
        queries, keys = self.queries, self.keys
        if B != 1 or queries.size != T or keys.size != S or len(queries) != len(keys):
            raise InputError(
                f"sequences behind one another, {queries.size} queries of {len(queries)} over {keys.size} keys of "
                f"{len(keys)}, are one row; got {B} rows of {T} queries over {S} keys"
            )


def varlen_part(mask: Mask | None) -> tuple[bool, SameSequence | None]:
    """Return whether a mask is causal, and its sequences; none where it is, or has, anything else."""
    if isinstance(mask, SameSequence):
        return False, mask
    if type(mask) is And:
        for one, other in ((mask.first, mask.second), (mask.second, mask.first)):
            if isinstance(one, SameSequence) and type(other) is Causal and other.offset_B is None:
                return True, one
    return False, None


class VarlenTokens:
    """The tokens of a batch that are real, whatever lies between them."""

    def __init__(self, tokens_BT: Tensor, real_BT: Tensor) -> None:
        self._tokens_BT, T = tokens_BT, tokens_BT.size(1)
        places_R = real_BT.flatten().nonzero()[:, 0]
        self._tokens_R = tokens_BT.flatten()[places_R]
        self._rows_R, self._positions_R = places_R // T, places_R % T
        self._sequences = Sequences.of(real_BT.sum(1))

    def embedded(self, embedding: Embedding) -> Tensor:
        """Return their vectors (1, R, D), each at the position that it has in its sequence."""
        try:
            x_R1D: Tensor = embedding(self._tokens_R[:, None], self._positions_R.numpy())
        except InputError:
            embedding(self._tokens_BT)  # names the place in the batch
            raise
        return x_R1D.transpose(0, 1)

    @contextmanager
    def keyed(self) -> Iterator[None]:
        """Drop from them what would be dropped with the padding."""
        with keys_by_position(self._rows_R, self._positions_R):
            yield

    def mask(self, other: "VarlenTokens | None" = None) -> Mask:
        """Mask in which each attends to its own sequence, or to the sequence of the other batch."""
        return SameSequence(self._sequences, self._sequences if other is None else other._sequences)


def decoder_states(
    model: Transformer,
    source: Tensor,
    target: Tensor,
    real: Tensor,
    *,
    places: Tensor | None = None,
    costs: list[Tensor] | None = None,
) -> Tensor:
    """Return the decoder's states (R, D) for those R target tokens that are `real`, of (B, T), row by row.

    >>> from regard import Transformer, TransformerConfig
    >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100)).eval()
    >>> source, target = torch.tensor([[7, 8, 9], [5, 0, 0]]), torch.tensor([[1, 6, 4], [1, 3, 0]])
    >>> states = model.decode(target, model.encode(source))
    >>> torch.allclose(decoder_states(model, source, target, target != 0), states[target != 0], atol=1e-5)
    True

    `places` (R), where the real tokens are among all of them, saves a wait on a GPU if it is given. Where every module
    is known and attention has a kernel for it, padding is not computed with. What the real tokens of
    source and target cost beyond the loss (adaptive computation time) is appended to `costs`. A decoder alone has no
    source: it is given one of width 0.
    """
    if real.shape != target.shape or real.dtype != torch.bool:
        raise InputError(
            f"which tokens are real is a boolean for each of {tuple(target.shape)} tokens; "
            f"got {real.dtype} of shape {tuple(real.shape)}"
        )
    if model.encoder is None and source.numel() > 0:
        raise InputError(f"a decoder alone reads no source; it was given one of shape {tuple(source.shape)}")
    longest = max(source.size(-1), target.size(-1))
    if not (longest <= MAX_LENGTH and can_use_varlen(model) and real.any()):
        places = real.flatten().nonzero()[:, 0] if places is None else places
        return _padded_states(model, source, target, costs, real).index_select(0, places)
    decoder = model.decoder
    assert decoder is not None
    assert model.target_embedding is not None
    check_tokens(source)
    check_tokens(target)
    needed = real.flip(1).cumsum(1).flip(1) > 0  # what comes before a real token is attended to
    writing = VarlenTokens(target, needed)
    memory: tuple[Tensor, Mask] | tuple[()] = ()
    if model.encoder is not None and model.source_embedding is not None:
        reading = VarlenTokens(source, source != model.config.pad_id)
        with reading.keyed():
            memory_1SD = model.encoder(reading.embedded(model.source_embedding), reading.mask())
        memory = memory_1SD, writing.mask(reading)
    with writing.keyed():
        states_1RD: Tensor = decoder(writing.embedded(model.target_embedding), *memory, mask=writing.mask())
    wanted = real[needed]
    return states_1RD[0] if wanted.all() else states_1RD[0, wanted]


def _padded_states(
    model: Transformer, source: Tensor, target: Tensor, costs: list[Tensor] | None, real: Tensor
) -> Tensor:
    """Return the decoder's states (B · T, D) for all target tokens; costs are those of the real ones."""
    counted: list[Tensor] = []
    counting: dict[str, Any] = {} if costs is None or model.config.sharing.act is None else {"costs": counted}
    memory = None if model.encoder is None else model.encode(source, **counting)
    states_BTD = model.decode(target, memory, **counting)
    if costs is not None and counted:
        reals = (real,) if memory is None else (source != model.config.pad_id, real)
        costs += [cost[some] for cost, some in zip(counted, reals, strict=True)]
    return states_BTD.flatten(0, 1)


def can_use_varlen(model: Transformer) -> bool:
    """Whether every module is known, and attention has a kernel for sequences behind one another.

    Without it there would be scores of every sequence for every other.
    """
    config = model.config
    heads = [head_width(config.d_model, config.num_heads, "", given) for given in (config.d_k, config.d_v)]
    attention = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    widths = [*heads, config.d_model, config.d_ff or LANES]  # whole random words for each position, too
    return (
        config.kind != "encoder-only"
        and not (model.training and (config.random_positions is not None or any(layer.dropout for layer in attention)))
        and all(width % LANES == 0 for width in widths)
        and unknown_module(model) is None
        and can_compute(model.output.weight)
        and all(type(layer) in REFERENCES for layer in attention)
    )
