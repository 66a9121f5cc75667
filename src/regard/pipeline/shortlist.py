"""The target tokens that may come of a source: a few hundred or thousand in place of the whole vocabulary."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from regard.errors import ModelError
from regard.files import replaced_file
from regard.text.lexicon import Lexicon

SHORTLIST = "shortlist.safetensors"
_NO_TAG = "all"


class Shortlist:
    """Lexicons, one for each language that a model writes, by the number of the tag that asks for it."""

    def __init__(self, lexicons: dict[int | None, Lexicon]) -> None:
        self.lexicons = lexicons

    def words(self, source: Sequence[int], others: Iterable[int]) -> NDArray[np.int32]:
        """Name the tokens that may come of a source and its tag, and others that must be among them, in order."""
        lexicon = self.lexicons.get(source[0] if source else None) or self.lexicons.get(None)
        if lexicon is None:
            raise ModelError("the shortlist has nothing for the language that is asked for")
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
        try:
            tensors = load_file(path)
            tags = {name.split(".")[0] for name in tensors}
            lexicons = {
                None if tag == _NO_TAG else int(tag): Lexicon(
                    *(tensors[f"{tag}.{name}"].numpy().astype(np.int64) for name in Lexicon._fields)
                )
                for tag in sorted(tags)
            }
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise ModelError(f"{path} is not a shortlist that can be read: {error}") from None
        for lexicon in lexicons.values():
            fits = all(numbers.size == 0 or -1 <= numbers.min() <= numbers.max() < target_size for numbers in lexicon)
            if lexicon.likeliest_VK.shape[0] != source_size or not fits:
                raise ModelError(f"{path} is for another vocabulary than this model's")
        return cls(lexicons)
