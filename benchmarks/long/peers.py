"""The packages from PyPI at the same settings, each a function of a length that returns an operator.

Two of them have their operator inside a module with projections, which are taken out of it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.long.settings import FEATURES, HEADS, LANDMARKS, WIDTH, WINDOW, K

Operator = Callable[[Tensor, Tensor, Tensor], Tensor]


def local_attention(length: int) -> Operator:
    """Return windows of blocks with their neighbors, and a mask that makes them as wide as ours."""
    from local_attention import LocalAttention

    settings: dict[str, Any] = dict(causal=False, look_backward=1, look_forward=1, exact_windowsize=True)
    operator: Operator = LocalAttention(window_size=WINDOW, use_rotary_pos_emb=False, **settings)
    return operator


def performer(length: int, *, causal: bool = False) -> Operator:
    """Return FAVOR+."""
    from performer_pytorch import FastAttention

    operator: Operator = FastAttention(K, nb_features=FEATURES, causal=causal)
    return operator


def linformer(length: int) -> Operator:
    """Return attention to mixtures of positions; its keys and values are mixed from one sequence."""
    from linformer import LinformerSelfAttention

    module = LinformerSelfAttention(HEADS * K, length, k=WIDTH, heads=HEADS)
    module.to_q = module.to_k = module.to_v = module.to_out = nn.Identity()
    return lambda query, key, value: module(_joined(query), context=_joined(key))


def nystrom(length: int) -> Operator:
    """Return attention by way of landmarks, without the convolution of the values."""
    from nystrom_attention import NystromAttention

    module = NystromAttention(HEADS * K, dim_head=K, heads=HEADS, num_landmarks=LANDMARKS, residual=False)
    module.to_qkv = module.to_out = nn.Identity()
    return lambda query, key, value: module(torch.cat([_joined(x) for x in (query, key, value)], dim=-1))


def _joined(x_BHTK: Tensor) -> Tensor:
    return x_BHTK.transpose(1, 2).flatten(2)


PEERS: dict[str, Callable[[int], Operator]] = {
    "local-attention": local_attention,
    "performer-pytorch": performer,
    "performer-pytorch, causal": lambda length: performer(length, causal=True),
    "linformer": linformer,
    "nystrom-attention": nystrom,
}
