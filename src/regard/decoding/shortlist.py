"""The target tokens that may come of a source: a few hundred or thousand in place of the whole vocabulary."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from regard.data.lexicon import Lexicon
from regard.errors import ModelError, shown
from regard.files import replaced_file
from regard.model.directory import read_weights

SHORTLIST = "shortlist.safetensors"
Words = NDArray[np.int32]
"""Token numbers, in order."""
_NO_TAG = "all"
_LARGEST = 128 << 20


class Shortlist:
    """Lexicons, one for each language that a model writes, by the number of the tag that asks for it."""

    def __init__(self, lexicons: dict[int | None, Lexicon]) -> None:
        self.lexicons = lexicons

    def words(self, source: Sequence[int], others: Iterable[int]) -> NDArray[np.int32]:
        """Return the tokens that may come of a source and its tag, and others that must be among them, in order."""
        lexicon = self.lexicons.get(source[0] if source else None) or self.lexicons.get(None)
        if lexicon is None:
            raise ModelError("the shortlist does not cover the requested language")
        likely = lexicon.likeliest_VK[list(source)].ravel()
        found = np.unique(np.concatenate([likely, lexicon.frequent_A, np.array(list(others), dtype=np.int64)]))
        return found[found >= 0].astype(np.int32)

    def save(self, path: Path) -> None:
        """Write a file of tensors."""
        tensors = {}
        for tag, lexicon in self.lexicons.items():
            for name, numbers in zip(Lexicon._fields, lexicon, strict=True):
                small = torch.int16 if numbers.size == 0 or numbers.max() < 2**15 else torch.int32
                tensors[f"{_NO_TAG if tag is None else tag}.{name}"] = torch.from_numpy(numbers.copy()).to(small)
        with replaced_file(path) as fresh:
            save_file(tensors, fresh)

    @classmethod
    def load(cls, path: Path, source_size: int, target_size: int) -> Self:
        """Read a file, and check that it is for a model with these vocabularies."""
        tensors = read_weights(path, largest=_LARGEST)
        lexicons: dict[int | None, Lexicon] = {}
        for tag in sorted({name.partition(".")[0] for name in tensors}):
            if tag != _NO_TAG and not (len(tag) < 10 and tag.isascii() and tag.isdigit()):
                raise ModelError(f"{path} is not a shortlist: {shown(tag)} is not the number of a tag")
            found = [tensors.pop(f"{tag}.{name}", None) for name in Lexicon._fields]
            if not _are_tokens(found, source_size, target_size):
                raise ModelError(f"{path} is for another vocabulary than this model's, or is not a shortlist")
            likeliest_VK, frequent_A = (numbers.numpy().astype(np.int64) for numbers in found if numbers is not None)
            lexicons[None if tag == _NO_TAG else int(tag)] = Lexicon(likeliest_VK, frequent_A)
        if tensors:
            raise ModelError(f"{path} is not a shortlist: it holds {shown(min(tensors))}")
        return cls(lexicons)


def _are_tokens(tensors: list[Tensor | None], source_size: int, target_size: int) -> bool:
    """Whether these are the likeliest targets of each source token, and the most frequent: token numbers, or -1."""
    likeliest_VK, frequent_A = tensors
    return (
        likeliest_VK is not None
        and frequent_A is not None
        and likeliest_VK.dim() == 2
        and frequent_A.dim() == 1
        and likeliest_VK.size(0) == source_size
        and all(
            numbers.dtype in (torch.int16, torch.int32)
            and (numbers.numel() == 0 or -1 <= int(numbers.min()) <= int(numbers.max()) < target_size)
            for numbers in (likeliest_VK, frequent_A)
        )
    )
