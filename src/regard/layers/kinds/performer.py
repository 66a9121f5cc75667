"""Performer: softmax attention by random features, FAVOR+ (Choromanski et al. 2021)."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import InputError
from regard.layers.kinds.recurrent import Features, RecurrentKind, State, precision_of
from regard.layers.kinds.scan import Tensors, scan
from regard.layers.kv_cache import KeyValue
from regard.ops.attention import repeat_heads


class PerformerAttention(RecurrentKind):
    """Approximates softmax(QKᵀ · scale)V without the scores: exp(q·k) is the mean of φ_e(q) φ_e(k) over features e.

    φ_e(x) = exp(ω_e·x - |x|²/2) for a random ω_e ~ N(0, I), orthogonal to others, with q and k multiplied by √scale.
    The estimate is unbiased, positive, and its error falls with the root of the number of features. It is good where
    queries and keys are short: its variance grows with exp(|q + k|²).

    The random features are a function of `seed` and not among the weights. They are never drawn again.
    """

    projection_EK: Tensor

    def __init__(self, d_k: int, *, features: int = 128, seed: int = 0, scale: float | None = None) -> None:
        super().__init__()
        if features < 1:
            raise InputError(f"features is {features}; the Performer needs at least 1")
        self.features, self.seed = features, seed
        self.scale = d_k**-0.5 if scale is None else scale
        self._directions = orthogonal_features(features, d_k, seed)
        self.register_buffer("projection_EK", self._made(torch.get_default_dtype()), persistent=False)

    def expected_buffers(self) -> dict[str, Tensor]:
        """Return the random features as they are computed, to compare with."""
        return {"projection_EK": self._made(self.projection_EK.dtype, self.projection_EK.device)}

    def _made(self, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        return torch.tensor(self._directions, dtype=dtype, device=device)

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        # After a change of type they are made again: rounded once, and not once for each type they have been through.
        before = self.projection_EK.dtype
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        if self.projection_EK.dtype != before:
            self.projection_EK = self._made(self.projection_EK.dtype, self.projection_EK.device)
        return self

    def start_state(self, query_BHTK: Tensor, key_value: KeyValue) -> State:
        """Return the state before the first position: zeros, divided by nothing yet."""
        B, H, V = query_BHTK.size(0), query_BHTK.size(1), key_value.value_BGSV.size(-1)
        zeros_BHEV = query_BHTK.new_zeros(B, H, self.features, V + 1, dtype=precision_of(query_BHTK))
        return State(zeros_BHEV, torch.full_like(zeros_BHEV[..., :1, :1], -torch.inf))

    def causal_features(
        self, query_BHTK: Tensor, key_BGTK: Tensor, real_B1T1: Tensor | None, gates_BGTE: Tensor | None, state: State
    ) -> Features:
        """Return the features; those of keys are divided by the largest so far, which the state is divided by, too.

        The largest of all would know the future, and could be so large that what is in the past vanishes.
        """
        assert state.shift_BH11 is not None, "the state of a Performer has a shift"
        log_key_BHTE = repeat_heads(self._log_features(key_BGTK, real_B1T1), query_BHTK.size(1))
        largest_BHT1 = log_key_BHTE.detach().amax(-1, keepdim=True)
        running = torch.cat([state.shift_BH11.detach(), largest_BHT1], dim=2).cummax(2).values
        before_BHT1, until_BHT1 = running[:, :, :-1], running[:, :, 1:]
        log_decay_BHT1 = (before_BHT1 - until_BHT1).masked_fill(before_BHT1 == -torch.inf, 0.0)
        finite_BHT1 = until_BHT1.masked_fill(until_BHT1 == -torch.inf, 0.0)
        key_BHTE = (log_key_BHTE - finite_BHT1).exp()
        return Features(self.query_features(query_BHTK, None), key_BHTE, log_decay_BHT1, running[:, :, -1:])

    def key_shift(self, key_BGSK: Tensor, real_B1S1: Tensor | None) -> Tensor | None:
        """Return the largest of each feature over the keys of a row, so that each has a key where it is 1."""

        def compare(largest: Tensors, key_BGSK: Tensor, real: Tensor | None) -> tuple[Tensor, Tensors]:
            found_BG1E = self._log_features(key_BGSK, real).amax(2, keepdim=True)
            return key_BGSK[..., :0], (found_BG1E if largest[0] is None else found_BG1E.maximum(largest[0]),)

        if key_BGSK.size(2) == 0:
            return None
        with torch.no_grad():
            _, (shift_BG1E,) = scan(compare, (None,), key_BGSK, real_B1S1)
        assert shift_BG1E is not None
        return shift_BG1E.masked_fill(shift_BG1E == -torch.inf, 0.0)

    def key_features(self, key_BGSK: Tensor, real_B1S1: Tensor | None, shift_BG1E: Tensor | None) -> Tensor:
        """Return the features of keys, each divided by its largest over the row, 0 where keys are hidden."""
        log_features = self._log_features(key_BGSK, real_B1S1)
        return (log_features if shift_BG1E is None else log_features - shift_BG1E).exp()

    def query_features(self, query_BHTK: Tensor, shift_BG1E: Tensor | None) -> Tensor:
        """Return the features of queries, multiplied by what those of keys were divided by, the largest of them 1."""
        log_features = self._log_features(query_BHTK, None)
        if shift_BG1E is not None:
            log_features = log_features + repeat_heads(shift_BG1E, query_BHTK.size(1))
        return (log_features - log_features.detach().amax(-1, keepdim=True)).exp()

    def _log_features(self, x_BHTK: Tensor, real_B1T1: Tensor | None) -> Tensor:
        """Return ω_e·x - |x|²/2, -∞ for what is hidden. A common factor of all features cancels, so there is none."""
        x_BHTK = x_BHTK.to(precision_of(x_BHTK)) * self.scale**0.5
        projected_BHTE = x_BHTK @ self.projection_EK.to(x_BHTK.dtype).mT
        log_features = projected_BHTE - x_BHTK.square().sum(-1, keepdim=True) / 2
        return log_features if real_B1T1 is None else log_features.masked_fill(~real_B1T1, -torch.inf)


def orthogonal_features(features: int, d_k: int, seed: int) -> NDArray[np.float64]:
    """Return random rows (E, K), each as if of N(0, I), orthogonal to the others within blocks of d_k rows.

    >>> rows = orthogonal_features(3, 2, seed=0)
    >>> rows.shape, bool(abs(rows[0] @ rows[1]) < 1e-12)
    ((3, 2), True)
    """
    # The stream of RandomState is frozen: the same in all versions of numpy.
    draw = np.random.RandomState(seed)
    blocks = []
    for _ in range(-(-features // d_k)):
        directions, triangle = np.linalg.qr(draw.standard_normal((d_k, d_k)))
        # Signs make the factorization unique, and the directions uniform.
        directions = directions * np.where(np.diagonal(triangle) < 0, -1.0, 1.0)
        lengths = np.sqrt(np.square(draw.standard_normal((d_k, d_k))).sum(1, keepdims=True))
        blocks.append(directions.T * lengths)
    return np.concatenate(blocks)[:features]
