"""Language modeling: what comes next in a text, by a decoder."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, overload

from pydantic import Field

from regard.data import Tokenizer
from regard.data.corpora import Example
from regard.data.tokenizer import END
from regard.decoding import Request, SearchSettings
from regard.inference.decode import decode_requests
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
        prompts = [tuple(self.target.encode(text)) for text in checked_texts(texts, "texts")]
        distinct = list(dict.fromkeys(prompts))  # one that comes again is gone on with once
        found = decode_requests(
            self._backend,
            [[] for _ in distinct],  # a decoder alone has no sources: prompts are prefixes of targets
            [self._continuation(prompt, settings) for prompt in distinct],
            settings,
            never=self.target.special,
            text_of=self.target.decode if settings.n_best > 1 else None,
        )
        made = dict(zip(distinct, map(self._generated, found), strict=True))
        results = [made[prompt] for prompt in prompts]
        return results[0] if isinstance(texts, str) else results

    def stream(self, text: str, **changes: Any) -> Iterator[str]:
        """Return a text and what comes next piece by piece, each as soon as nothing can change it any more."""
        self._refresh()
        settings = self.with_changes(changes)
        prompt = tuple(self.target.encode(checked_texts([text], "texts")[0]))
        yield from self._streamed([], self._continuation(prompt, settings), settings)

    def _continuation(self, prompt: tuple[int, ...], settings: SearchSettings) -> Request:
        limit = min(len(prompt) + (settings.max_length or _NEW_TOKENS), self._backend.longest)
        return Request(limit=limit, prefix=prompt, seed=zlib.crc32(repr(prompt).encode()))
