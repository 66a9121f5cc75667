"""The base class of all pipelines: a model with its tokenizers."""

import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, overload

import torch

from regard.acceleration.backend import Backend
from regard.acceleration.known import unknown_part
from regard.acceleration.packed_linear import DecodingPrecision, int8_is_fast
from regard.acceleration.snapshot import Snapshot
from regard.data import Tokenizer
from regard.data.tokenizer import load_tokenizers
from regard.decoding import Hypothesis, Request, SearchSettings, StreamedTokens
from regard.decoding.settings import GENERATION, read_settings
from regard.decoding.shortlist import SHORTLIST, Shortlist
from regard.devices import resolve_device
from regard.errors import InputError, ModelError
from regard.inference.backends import choose_backend, drops_units
from regard.inference.decode import decode_requests, decode_stream, target_limit
from regard.inference.forced_decoding import cross_attention, token_log_probabilities
from regard.inference.results import CrossAttention, GeneratedText
from regard.inference.texts import checked_texts
from regard.model import Transformer, TransformerConfig
from regard.notebook import table_html

Shape = Literal["encoder-decoder", "encoder-only", "decoder-only"]
_NEEDS: dict[Shape, str] = {
    "encoder-decoder": "an encoder and a decoder",
    "encoder-only": "an encoder without a decoder",
    "decoder-only": "a decoder without an encoder",
}


class PipelineTask(Protocol):
    """What a pipeline knows of its task: a `regard.tasks.Task`."""

    @property
    def kind(self) -> str:
        """The name of the task."""

    @property
    def tag(self) -> str | None:
        """The special token before its sources."""

    def model_dump_json(self) -> str:
        """Return its settings."""


class Pipeline:
    """A model with its tokenizers, ready for use: the base of the pipelines of all tasks.

    `regard.load` makes the pipeline of a model's task, such as a `Translator`. `model` is the `Transformer`, `source`
    and `target` are the tokenizers. A change of the model, of a weight or of a module, takes effect with the next
    call.
    """

    kind: ClassVar[str] = "text2text"
    """The kind of task that it is for, as `task.json` names it."""
    verb: ClassVar[str] = "generate"
    """The method that does the task's work, and the command of that name."""
    shape: ClassVar[Shape] = "encoder-decoder"
    """The shape of the model that it needs; one that is encoder-only has no decoding backend."""
    result: ClassVar[type[GeneratedText]] = GeneratedText
    """What `generate` returns."""
    unused_settings: ClassVar[tuple[str, ...]] = ("placeholders", "fold_capitals")
    """The search settings that it does not read."""

    def __init__(
        self,
        model: Transformer,
        source: Tokenizer,
        target: Tokenizer,
        *,
        settings: SearchSettings | None = None,
        precision: Literal["auto", "float", "int8"] = "auto",
        shortlist: Shortlist | None = None,
        task: PipelineTask | None = None,
        name: str = "",
    ) -> None:
        if model.config.kind != self.shape:
            raise InputError(f"the model is {model.config.kind}; a {self.kind} pipeline needs {_NEEDS[self.shape]}")
        if (model.config.source_size, model.config.vocab_size) != (source.vocab_size, target.vocab_size):
            raise ModelError(
                f"the model knows {model.config.source_size} and {model.config.vocab_size} tokens, "
                f"its tokenizers {source.vocab_size} and {target.vocab_size}"
            )
        if precision not in ("auto", "float", "int8"):
            raise InputError(f"precision {precision!r} is not known; it is one of auto, float, int8")
        if precision == "int8" and self.shape == "encoder-only":
            raise InputError("precision int8 is for decoding, and the model has no decoder")
        self.name = name
        self._model, self.source, self.target = model.eval(), source, target
        self.settings = SearchSettings() if settings is None else settings
        self._task = task
        self._requested, self.shortlist = precision, shortlist
        self._snapshot: Snapshot | None = None
        self._is_shared = True
        self._task_tag = self._tag_number(None if task is None else task.tag)
        self._refresh()

    @classmethod
    def load(
        cls,
        path: Path,
        precision: Literal["auto", "float", "int8"] = "auto",
        build: Callable[[TransformerConfig], Transformer] | None = None,
        device: str = "cpu",
        task: PipelineTask | None = None,
    ) -> Self:
        """Read a model directory with its tokenizers; `task` is one of the tasks of its `task.json`."""
        model = Transformer.load(path, at_least=torch.float32, build=build).to(resolve_device(device))
        source, target = load_tokenizers(path)
        settings = read_settings(path / GENERATION) if (path / GENERATION).exists() else SearchSettings()
        shortlist = None
        if (path / SHORTLIST).exists():
            shortlist = Shortlist.load(path / SHORTLIST, source.vocab_size, target.vocab_size)
        try:
            pipeline = cls(
                model,
                source,
                target,
                settings=settings,
                precision=precision,
                shortlist=shortlist,
                task=task,
                name=path.resolve().name,
            )
        except (InputError, ModelError) as error:
            raise ModelError(f"{path}: {error}") from None
        pipeline._is_shared = build is not None
        pipeline._read_more(path)
        return pipeline

    def _read_more(self, path: Path) -> None:
        """Read what a subclass has in a model directory beside the model."""

    @property
    def model(self) -> Transformer:
        """The model in plain PyTorch. It may be changed: what is computed changes with it."""
        self._is_shared = True
        return self._model

    @property
    def config(self) -> TransformerConfig:
        """The configuration of the model."""
        return self._model.config

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self._model.device

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(value for _, value in self._summary())})"

    def _repr_html_(self) -> str:
        return table_html(self._summary())

    def _summary(self) -> list[tuple[str, str]]:
        """Return what tells this pipeline from others, each with a heading."""
        config, count = self._model.config, sum(parameter.numel() for parameter in self._model.parameters())
        rows = [
            ("model", self.name),
            *self._traits(),
            ("size", f"{config.encoder_layers}+{config.decoder_layers} layers, {count / 1e6:.1f} M parameters"),
            ("precision", self.precision),
        ]
        return [(heading, value) for heading, value in rows if value]

    def _traits(self) -> list[tuple[str, str]]:
        """Return what a subclass adds to the summary, each with a heading."""
        return []

    @property
    def backend(self) -> str:
        """What decodes, and why if it is not the fastest."""
        self._refresh()
        return "none: the model has no decoder" if self._chosen is None else self._chosen.name

    @property
    def _backend(self) -> Backend:
        if self._chosen is None:
            raise InputError(f"the model is {self.shape}; it has no decoder to write with")
        return self._chosen

    def _refresh(self) -> None:
        """Choose the backend again if the model was changed: its modules, its hooks or its weights.

        A model that nobody has asked for since it was loaded is not compared: only global hooks, and other forward
        passes of its classes, can change it.
        """
        if self._snapshot is not None and self._snapshot.is_current(whole=self._is_shared):
            return
        self._snapshot = None
        self.precision: DecodingPrecision = self._chosen_precision()
        self._chosen: Backend | None = None
        if self.shape != "encoder-only":
            self._chosen = choose_backend(self._model, self.precision, self.shortlist)
        self._snapshot = Snapshot(self._model)

    def _chosen_precision(self) -> DecodingPrecision:
        if self._requested != "auto":
            return self._requested
        is_fit = all(weight.is_cpu and weight.dtype == torch.float32 for weight in self._model.parameters())
        is_fit = is_fit and self.shape != "encoder-only" and unknown_part(self._model) is None
        is_fit = is_fit and not drops_units(self._model)
        return "int8" if is_fit and int8_is_fast() else "float"

    @property
    def identity(self) -> str:
        """A digest of this model as it computes: its weights, tokenizers, settings and task."""
        task = "" if self._task is None else self._task.model_dump_json()
        described = f"{self.precision} {self.settings.model_dump_json()} {task}"
        digest = hashlib.sha256(described.encode())
        for tokenizer in (self.source, self.target):
            digest.update(tokenizer.to_json().encode())
        for name, tensor in sorted(self._model.state_dict().items()):
            digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def with_changes(self, changes: Mapping[str, Any]) -> SearchSettings:
        """Return the settings of this model with some of them changed."""
        given = {key: value for key, value in changes.items() if value is not None}
        for name in self.unused_settings:
            if given.get(name):
                raise InputError(f"{name} is for translation alone; a model for {self.kind} does not use it")
        wanted = given.get("n_best", 1)
        if "beam" not in given and isinstance(wanted, int) and wanted > self.settings.beam:
            given["beam"] = wanted
        settings = SearchSettings(**{**self.settings.model_dump(), **given})
        if settings.shortlist and self.shortlist is None:
            raise InputError("the model has no shortlist; `regard shortlist` makes one")
        return settings

    def limit(self, source: Sequence[int], settings: SearchSettings | None = None, needed: int = 0) -> int:
        """Return how many tokens the target of a source may have, where it needs at least so many."""
        return target_limit(self._backend, source, self.settings if settings is None else settings, needed)

    @property
    def source_end(self) -> int:
        """The token that ends a source."""
        end = self._model.config.eos_id
        if end is None:
            raise InputError("the model's config has no eos_id, which ends a source")
        return end

    def encoded(self, text: str) -> list[int]:
        """Return the source tokens of a text: its task's tag, if it has one, the text, its end."""
        return self._with_tags(self.source.encode(text))

    def _with_tags(self, tokens: Sequence[int], *tags: int | None) -> list[int]:
        """Return a source: the tag of the task and further tags, where there are any, its tokens, its end."""
        present = [tag for tag in (self._task_tag, *tags) if tag is not None]
        return [*present, *tokens, self.source_end]

    def _tag_number(self, tag: str | None) -> int | None:
        if tag is not None and tag not in self.source.tags:
            raise ModelError(f"its task has the tag {tag!r}, which is not a special token of its tokenizer")
        return None if tag is None else self.source.number(tag)

    @overload
    def generate(self, texts: str, **changes: Any) -> GeneratedText: ...
    @overload
    def generate(self, texts: Sequence[str], **changes: Any) -> list[GeneratedText]: ...
    def generate(self, texts: str | Sequence[str], **changes: Any) -> GeneratedText | list[GeneratedText]:
        """Write the target of a text, or of several at once; a blank text stays as it is.

        The fields of `SearchSettings` change how it searches.
        """
        self._refresh()
        settings = self.with_changes(changes)
        lines = checked_texts(texts, "texts")
        sources = [self.encoded(line) for line in lines if line.strip()]
        found = iter(self._found(sources, settings, lambda source: self._request(source, settings)))
        made = [self._generated(next(found)) if line.strip() else self.result(line, 0.0, []) for line in lines]
        return made[0] if isinstance(texts, str) else made

    def stream(self, text: str, **changes: Any) -> Iterator[str]:
        """Return the target of a text piece by piece, each as soon as it is final."""
        self._refresh()
        settings = self.with_changes(changes)
        (line,) = checked_texts([text], "texts")
        if not line.strip():
            yield line
            return
        source = self.encoded(line)
        yield from self._streamed(source, self._request(source, settings), settings)

    def _generated(self, hypotheses: Sequence[Hypothesis]) -> GeneratedText:
        """Return hypotheses, best first, as a text with its alternatives."""
        best, *others = [
            self.result(
                self.target.decode(hypothesis.tokens),
                hypothesis.score,
                [self.target.token(number) for number in hypothesis.tokens],
                cut=hypothesis.cut,
            )
            for hypothesis in hypotheses
        ]
        return replace(best, alternatives=tuple(others))

    def _request(self, source: Sequence[int], settings: SearchSettings) -> Request:
        """Return what is searched for, for a source; its samples depend on itself alone."""
        return Request(limit=self.limit(source, settings), seed=zlib.crc32(repr(list(source)).encode()))

    def _found(
        self,
        sources: Sequence[list[int]],
        settings: SearchSettings,
        request: Callable[[Sequence[int]], Request],
    ) -> list[list[Hypothesis]]:
        """Return the best targets of each source; one that comes again is searched for once, samples included."""
        distinct = list(dict.fromkeys(map(tuple, sources)))
        found = decode_requests(
            self._backend,
            distinct,
            [request(source) for source in distinct],
            settings,
            never=self.target.special,
            text_of=self.target.decode if settings.n_best > 1 else None,
        )
        by_source = dict(zip(distinct, found, strict=True))
        return [by_source[tuple(source)] for source in sources]

    def _streamed(self, source: list[int], request: Request, settings: SearchSettings) -> Iterator[str]:
        """Return the target of a source piece by piece."""
        settled: list[int] = []
        shown = ""
        for event in decode_stream(self._backend, source, request, settings, never=self.target.special):
            if isinstance(event, StreamedTokens):
                settled += event.tokens
            else:
                settled = event.hypotheses[0].tokens
            # Bytes of a character whose rest is still to come are left out, and come with it.
            text = self.target.decode(settled)
            yield text[len(shown) :]
            shown = text

    def decode(self, sources: Sequence[list[int]], **changes: Any) -> list[list[Hypothesis]]:
        """Search for targets of sources in token numbers, with their tags and ends; best first."""
        self._refresh()
        if isinstance(sources, str) or any(isinstance(source, str) for source in sources):
            raise InputError(f"decode takes the token numbers of each source; {self.verb} takes texts")
        settings = self.with_changes(changes)
        requests = [Request(limit=self.limit(source, settings)) for source in sources]
        return decode_requests(self._backend, sources, requests, settings, never=self.target.special)

    @overload
    def score(self, sources: str, targets: str) -> Hypothesis: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Hypothesis]: ...
    def score(self, sources: str | Sequence[str], targets: str | Sequence[str]) -> Hypothesis | list[Hypothesis]:
        """Return the tokens, log-probabilities and score of given targets."""
        return self._scored(sources, targets, self.encoded)

    def _scored(
        self, sources: str | Sequence[str], targets: str | Sequence[str], encoded: Callable[[str], list[int]]
    ) -> Hypothesis | list[Hypothesis]:
        if isinstance(sources, str) != isinstance(targets, str):
            raise InputError("one of sources and targets is a text and the other is not; both are, or neither")
        texts, written = checked_texts(sources, "sources"), checked_texts(targets, "targets")
        if len(texts) != len(written):
            raise InputError(f"{len(texts)} sources cannot be scored with {len(written)} targets")
        pairs = [(encoded(source), self.target.encode(target)) for source, target in zip(texts, written, strict=True)]
        scored = [
            Hypothesis(tokens, sum(logs) / len(logs) ** self.settings.length_penalty, sum(logs), cut=False)
            for (_, tokens), logs in zip(pairs, self._logs(pairs), strict=True)
        ]
        return scored[0] if isinstance(sources, str) else scored

    def _logs(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return log p of each token of targets after what comes before them, and of their end."""
        return self.token_log_probabilities(pairs)

    def token_log_probabilities(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return log p of each token of given targets under their sources, and of their end, in token numbers."""
        return token_log_probabilities(self._model, pairs)

    def attention(self, source: str, target: str) -> CrossAttention:
        """Return what each token of a target attends to."""
        return self._weights(source, target, self.encoded)

    def _weights(self, source: str, target: str, encoded: Callable[[str], list[int]]) -> CrossAttention:
        source, target = checked_texts([source], "source")[0], checked_texts([target], "target")[0]
        return self._attention(encoded(source), self.target.encode(target))

    def _attention(self, source: list[int], target: list[int]) -> CrossAttention:
        return CrossAttention(
            [self.source.token(number) for number in source],
            [self.target.token(number) for number in (*target, self.source_end)],
            cross_attention(self._model, source, target),
        )
