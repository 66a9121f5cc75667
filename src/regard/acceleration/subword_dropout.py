"""BPE-dropout by a kernel: the same cuts as in Python."""

import ctypes

import numpy as np

from regard.data.subword_dropout import Cut, MergeTable, Numbers, merge_logs
from regard.kernels.bindings import SubwordDropout, kernels, library


def cut_by_kernel(table: MergeTable, rate: float, tokens: Numbers, start: int) -> list[int]:
    """Cut tokens again, by a kernel."""
    arrays = table.pairs, table.ranks, table.whole, table.letters, table.letter_begins, table.kinds
    described = SubwordDropout(len(table.pairs), *(array.ctypes.data for array in arrays), *merge_logs(rate))
    tokens = np.ascontiguousarray(tokens)
    out, count = np.empty(table.most_pieces(tokens), dtype=np.int64), ctypes.c_int64()
    library().regard_subword_dropout(
        ctypes.byref(described), tokens.ctypes.data, len(tokens), start, out.ctypes.data, ctypes.byref(count)
    )
    return out[: count.value].tolist()  # type: ignore[no-any-return]


def subword_cut() -> Cut | None:
    """Return the kernel that cuts tokens, or None where there is none."""
    return None if kernels() is None else cut_by_kernel
