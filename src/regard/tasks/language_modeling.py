"""Language modeling: what comes next in a text, by a decoder."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, overload

from pydantic import Field

from regard.data import Tokenizer
from regard.data.corpora import Example
from regard.data.tokenizer import END
from regard.decoding import Hypothesis, Request, SearchSettings
from regard.inference.pipeline import Pipeline
from regard.inference.results import GeneratedText
from regard.inference.texts import checked_texts
from regard.tasks.task import Task, TokenPair

_NEW_TOKENS = 100  # written after a prompt, unless max_length says otherwise


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


class TextGenerator(Pipeline):
    """A language model ready to go on with texts."""

    kind: ClassVar[str] = "language-modeling"
    verb: ClassVar[str] = "generate"
    shape = "decoder-only"

    @overload
    def generate(self, texts: str, **changes: Any) -> GeneratedText: ...
    @overload
    def generate(self, texts: Sequence[str], **changes: Any) -> list[GeneratedText]: ...
    def generate(self, texts: str | Sequence[str], **changes: Any) -> GeneratedText | list[GeneratedText]:
        """Go on with a text, or with several at once; what is returned begins with the text itself.

        The fields of `SearchSettings` change the search: `sample=True` with `temperature`, `top_k` and `top_p` for
        random texts, `max_length` for how many tokens are written.
        """
        self._refresh()
        settings = self.with_changes(changes)
        prompts = [self.target.encode(text) for text in checked_texts(texts, "texts")]
        # Lengths are those of what is written, and a search counts the prompt: those of one length go together.
        lengths = [len(prompt) if settings.min_length else 0 for prompt in prompts]
        found: dict[int, list[Hypothesis]] = {}
        for length in set(lengths):
            places = [place for place, other in enumerate(lengths) if other == length]
            some = [prompts[place] for place in places]
            hypotheses = self._found(some, _after(length, settings), lambda prompt: self._request(prompt, settings))
            found.update(zip(places, hypotheses, strict=True))
        made = [self._generated(found[place]) for place in range(len(prompts))]
        return made[0] if isinstance(texts, str) else made

    def stream(self, text: str, **changes: Any) -> Iterator[str]:
        """Go on with a text piece by piece; the first piece begins with the text itself."""
        self._refresh()
        settings = self.with_changes(changes)
        prompt = self.target.encode(checked_texts([text], "texts")[0])
        yield from self._streamed(prompt, self._request(prompt, settings), _after(len(prompt), settings))

    def _request(self, source: Sequence[int], settings: SearchSettings) -> Request:
        limit = min(len(source) + (settings.max_length or _NEW_TOKENS + settings.min_length), self._backend.longest)
        return Request(limit=limit, prefix=tuple(source), seed=zlib.crc32(repr(list(source)).encode()))


def _after(length: int, settings: SearchSettings) -> SearchSettings:
    """Return the settings of a search that starts after a prompt of so many tokens, which it counts too."""
    if not settings.min_length:
        return settings
    return settings.model_copy(update={"min_length": length + settings.min_length})
