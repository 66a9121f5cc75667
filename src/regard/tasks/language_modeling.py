"""Language modeling: what comes next in a text, by a decoder."""

import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, overload

import torch
from pydantic import Field

from regard.data import Tokenizer, padded
from regard.data.corpora import Example
from regard.data.tokenizer import END, START
from regard.decoding import Request, SearchSettings
from regard.errors import InputError
from regard.inference.decode import decode_requests
from regard.inference.pipeline import Pipeline
from regard.inference.results import GeneratedText
from regard.inference.texts import checked_texts
from regard.model.own_forward import changes_logits
from regard.ops import label_smoothed_cross_entropy
from regard.tasks.task import Task, TokenPair

_BATCH = 32  # blocks that are read together
_NEW_TOKENS = 100  # written after a prompt, unless max_length says otherwise


class LanguageModelingTask(Task):
    """Texts, with the field `text`. The model is a decoder, which reads what came before and writes what comes next."""

    kind: Literal["language-modeling"] = "language-modeling"
    block: Annotated[int, Field(ge=2, le=65_536, strict=True)] = 256
    """A text of more tokens is trained on in blocks of so many."""

    shape = "decoder-only"
    fields = ("text",)
    metrics = ()

    @property
    def longest_part(self) -> int:
        """The length of a block behind its start."""
        return self.block + 1

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

    @property
    def task(self) -> LanguageModelingTask:
        """The task, with its settings."""
        return self._task if isinstance(self._task, LanguageModelingTask) else LanguageModelingTask()

    @overload
    def generate(self, texts: str, **changes: Any) -> GeneratedText: ...
    @overload
    def generate(self, texts: Sequence[str], **changes: Any) -> list[GeneratedText]: ...
    def generate(self, texts: str | Sequence[str], **changes: Any) -> GeneratedText | list[GeneratedText]:
        """Go on with a text, or with several at once; what is returned begins with the text itself.

        The fields of `SearchSettings` change the search: `sample=True` with `temperature`, `top_k` and `top_p` for
        random texts, `min_length` and `max_length` for how many tokens are written.
        """
        self._refresh()
        settings = self.with_changes(changes)
        prompts = [tuple(self.target.encode(text)) for text in checked_texts(texts, "texts")]
        made: dict[tuple[int, ...], GeneratedText] = {}
        # A search counts the prompt in min_length: where there is one, prompts of the same length go together.
        for length in {len(prompt) if settings.min_length else 0 for prompt in prompts}:
            some = [prompt for prompt in dict.fromkeys(prompts) if not settings.min_length or len(prompt) == length]
            found = decode_requests(
                self._backend,
                [[] for _ in some],  # a decoder alone has no sources: prompts are prefixes of targets
                [self._continuation(prompt, settings) for prompt in some],
                _after(length, settings),
                never=self.target.special,
                text_of=self.target.decode if settings.n_best > 1 else None,
            )
            made.update(zip(some, map(self._generated, found), strict=True))
        results = [made[prompt] for prompt in prompts]
        return results[0] if isinstance(texts, str) else results

    def _logs(self, pairs: Sequence[TokenPair]) -> list[list[float]]:
        """Return log p of each token of texts after their prompts, and of their end."""
        logs = self.token_log_probabilities([([], [*prompt, *tokens]) for prompt, tokens in pairs])
        return [found[len(prompt) :] for (prompt, _), found in zip(pairs, logs, strict=True)]

    def encoded(self, text: str) -> list[int]:
        """Return the tokens of a prompt."""
        return self.target.encode(text)

    @torch.no_grad()
    def perplexity(self, texts: str | Sequence[str]) -> float:
        """Return the perplexity of texts: exp of the mean negative log-likelihood of their tokens, ends among them.

        A text is read in the blocks that the model was trained on.
        """
        examples = [{"text": text} for text in checked_texts(texts, "texts") if text.strip()]
        blocks = [block for _, block in self.task.encode(examples, self.source, self.target)]
        if not blocks:
            raise InputError("the texts are empty; there is nothing to compute a perplexity of")
        model, pad, total = self.model.eval(), self.model.config.pad_id, 0.0
        blocks.sort(key=len)
        for first in range(0, len(blocks), _BATCH):
            some = blocks[first : first + _BATCH]
            given_BT = padded([[self.target.number(START), *block[:-1]] for block in some], pad).to(model.device)
            labels_BT = padded(some, pad).to(model.device)
            real_BT = padded([[1] * len(block) for block in some], 0).to(model.device).bool()
            if changes_logits(model):
                logits_RW = model(given_BT)[real_BT]
                total += float(
                    label_smoothed_cross_entropy(logits_RW, labels_BT[real_BT], smoothing=0.0, reduction="sum")
                )
            else:
                total += float(model.output.loss(model.decode(given_BT)[real_BT], labels_BT[real_BT]))
        return math.exp(total / sum(map(len, blocks)))

    def stream(self, text: str, **changes: Any) -> Iterator[str]:
        """Return a text and what comes next piece by piece, each as soon as nothing can change it any more."""
        self._refresh()
        settings = self.with_changes(changes)
        prompt = tuple(self.target.encode(checked_texts([text], "texts")[0]))
        yield from self._streamed([], self._continuation(prompt, settings), _after(len(prompt), settings))

    def _continuation(self, prompt: tuple[int, ...], settings: SearchSettings) -> Request:
        limit = min(len(prompt) + (settings.max_length or settings.min_length + _NEW_TOKENS), self._backend.longest)
        return Request(limit=limit, prefix=prompt, seed=zlib.crc32(repr(prompt).encode()))


def _after(length: int, settings: SearchSettings) -> SearchSettings:
    """Return the settings of a search that starts after a prompt of so many tokens, which it counts too."""
    if not settings.min_length:
        return settings
    return settings.model_copy(update={"min_length": length + settings.min_length})
