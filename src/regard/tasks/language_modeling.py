"""Language modeling: what comes next in a text, by a decoder."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from regard.data import Tokenizer
from regard.data.corpora import Example
from regard.data.tokenizer import END
from regard.tasks.task import Task, TokenPair


class LanguageModelingTask(Task):
    """Texts, with the field `text`. The model is a decoder, which reads what came before and writes what comes next."""

    kind: Literal["language-modeling"] = "language-modeling"
    block: Annotated[int, Field(ge=2, le=65_536, strict=True)] = 256
    """A text of more tokens is trained on in blocks of so many."""

    shape = "decoder-only"
    fields = ("text",)
    metrics = ()

    def texts(self, example: Example) -> tuple[str, ...]:
        """Return the text."""
        return (self.source(example),)

    def encode(self, examples: Sequence[Example], source: Tokenizer, target: Tokenizer) -> list[TokenPair]:
        """Return the blocks of each text as targets; the end is a token of the last one."""
        end = target.number(END)
        pairs: list[TokenPair] = []
        for tokens in target.encode_batch([self.source(example) for example in examples]):
            whole = [*tokens, end]
            pairs += [([], whole[start : start + self.block]) for start in range(0, len(whole), self.block)]
        return pairs

    def model_fields_for(self) -> dict[str, Any]:
        """Return a decoder alone."""
        return {"encoder_layers": 0}
