"""A model directory put to work: texts in, texts out."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self, overload

import torch

from regard.acceleration.known import unknown_module
from regard.acceleration.packed_linear import Precision, bytes_are_fast
from regard.acceleration.process import prepare_process
from regard.acceleration.snapshot import Snapshot
from regard.data import Tokenizer
from regard.data.sentences import Piece
from regard.data.tokenizer import load_tokenizers
from regard.decoding import Constraints, Hypothesis, Request, SearchSettings, Settled
from regard.decoding.settings import GENERATION, read_settings
from regard.decoding.shortlist import SHORTLIST, Shortlist
from regard.devices import resolve_device
from regard.errors import InputError, ModelError
from regard.inference.backends import choose_backend
from regard.inference.decode import decode_requests, decode_stream, default_limit
from regard.inference.forced_decoding import cross_attention, token_log_probabilities
from regard.model import Transformer, TransformerConfig
from regard.notebook import table_html
from regard.tasks.requests import TextRequests
from regard.tasks.translation import (
    CrossAttention,
    Part,
    RequestedWords,
    Translation,
    checked_texts,
    on_one_line,
    put_together,
    with_copies,
)

_FEWEST_WITH_REQUIRED = 5  # hypotheses; fewer cannot both translate and wait for where a required word belongs


class Pipeline:
    """A model with its tokenizers, ready to translate. `regard.load` makes one from a directory.

    `model` is the `Transformer`, `source` and `target` are the tokenizers. A change of the model, of a weight or of a
    module, takes effect with the next call.
    """

    def __init__(
        self,
        model: Transformer,
        source: Tokenizer,
        target: Tokenizer,
        *,
        settings: SearchSettings | None = None,
        precision: Literal["auto", "float", "int8"] = "auto",
        shortlist: Shortlist | None = None,
        name: str = "",
    ) -> None:
        if model.config.kind != "encoder-decoder":
            raise InputError(f"the model is {model.config.kind}; a pipeline needs an encoder and a decoder")
        if (model.config.source_size, model.config.vocab_size) != (source.vocab_size, target.vocab_size):
            raise ModelError(
                f"the model knows {model.config.source_size} and {model.config.vocab_size} tokens, "
                f"its tokenizers {source.vocab_size} and {target.vocab_size}"
            )
        if precision not in ("auto", "float", "int8"):
            raise InputError(f"precision {precision!r} is not known; it is one of auto, float, int8")
        self.name = name
        self._model, self.source, self.target = model.eval(), source, target
        self.settings = SearchSettings() if settings is None else settings
        self._requested, self.shortlist = precision, shortlist
        self._snapshot: Snapshot | None = None
        self._is_shared = True
        self._refresh()

    @classmethod
    def load(
        cls,
        path: Path,
        precision: Literal["auto", "float", "int8"] = "auto",
        build: Callable[[TransformerConfig], Transformer] | None = None,
        device: str = "cpu",
    ) -> Self:
        """Read a model directory with its tokenizers."""
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
                name=path.resolve().name,
            )
        except (InputError, ModelError) as error:
            raise ModelError(f"{path}: {error}") from None
        pipeline._is_shared = build is not None
        return pipeline

    @property
    def model(self) -> Transformer:
        """The model in plain PyTorch. It may be changed: what is decoded changes with it."""
        self._is_shared = True
        return self._model

    def __repr__(self) -> str:
        return f"Pipeline({', '.join(value for _, value in self._summary())})"

    def _repr_html_(self) -> str:
        return table_html(self._summary())

    def _summary(self) -> list[tuple[str, str]]:
        """Return what tells this pipeline from others, each with a heading."""
        config, count = self._model.config, sum(parameter.numel() for parameter in self._model.parameters())
        rows = [
            ("model", self.name),
            ("languages", " and ".join(self.languages)),
            ("size", f"{config.encoder_layers}+{config.decoder_layers} layers, {count / 1e6:.1f} M parameters"),
            ("precision", self.precision),
        ]
        return [(heading, value) for heading, value in rows if value]

    @property
    def backend(self) -> str:
        """What decodes, and why if it is not the fastest."""
        self._refresh()
        return self._backend.name

    def _refresh(self) -> None:
        """Choose the decoder again if the model was changed: its modules, its hooks or its weights.

        A model that nobody has asked for since it was loaded is not compared: only global hooks can change it.
        """
        if self._snapshot is not None and self._snapshot.is_current(whole=self._is_shared):
            return
        self._snapshot = None
        precision = self._requested
        if precision == "auto":
            parameters = self._model.parameters()
            is_fit = all(weight.is_cpu and weight.dtype == torch.float32 for weight in parameters)
            is_fit = is_fit and unknown_module(self._model) is None
            precision = "int8" if is_fit and bytes_are_fast() else "float"
        self.precision: Precision = precision
        self._backend = choose_backend(self._model, precision, self.shortlist)
        self._texts = TextRequests(self.source, self.target, self._backend)
        self._snapshot = Snapshot(self._model)

    @property
    def languages(self) -> list[str]:
        """The languages that the model was trained to be told to write."""
        return self._texts.languages

    def tag(self, to: str | None) -> int | None:
        """Return the token that asks for a language, if the model has any."""
        return self._texts.tag(to)

    @property
    def identity(self) -> str:
        """A digest of this model as it computes: its weights, tokenizers and settings."""
        digest = hashlib.sha256(f"{self.precision} {self.settings.model_dump_json()}".encode())
        for tokenizer in (self.source, self.target):
            digest.update(tokenizer.to_json().encode())
        for name, tensor in sorted(self._model.state_dict().items()):
            digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def check(self, to: str | None, changes: dict[str, Any]) -> None:
        """Raise an `InputError` or a `ConfigError` where a language or settings cannot be had, before any work."""
        self.tag(to)
        self.with_changes(changes)

    @overload
    def translate(self, texts: str, **options: Any) -> Translation: ...
    @overload
    def translate(self, texts: Sequence[str], **options: Any) -> list[Translation]: ...
    def translate(
        self,
        texts: str | Sequence[str],
        *,
        to: str | None = None,
        require: Sequence[str] = (),
        forbid: Sequence[str] = (),
        prefix: str = "",
        align: bool = False,
        **changes: Any,
    ) -> Translation | list[Translation]:
        """Translate a text, or several at once.

        >>> import regard
        >>> model = regard.load("de-en")
        >>> model.translate("Ich habe Hunger.", to="en", beam=5).text
        "I'm hungry."

        `to` is the language, for a model that knows several. The fields of `SearchSettings` change how it searches:
        `beam`, `n_best`, `length_penalty` and so on. Words to `require` come in each translation, words to `forbid`
        do not, and `prefix` is what it starts with. Texts of several sentences are translated sentence by sentence;
        what has no words in it stays as it is.
        """
        self._refresh()
        lines = checked_texts(texts, "texts")
        requested = RequestedWords.checked(require, forbid, prefix)
        settings = self.with_changes(changes)
        if requested.require:
            settings = settings.with_beam_of(_FEWEST_WITH_REQUIRED)
        asked = self._texts.constraints(requested)
        cut: list[list[Piece]] = []
        done: list[list[list[Part]]] = []
        places: list[tuple[int, int]] = []
        sources: list[list[int]] = []
        masked = [self._texts.masked(line, to, settings, requested) for line in lines]
        for line, shown in enumerate(masked):
            cut.append(self._texts.pieces(shown.text, whole=requested.something))
            done.append([[] for _ in cut[line]])
            for at, (piece, _) in enumerate(cut[line]):
                source = self.encoded(piece, to)
                copied = None if requested.something or not piece else self._texts.copied(piece, source, asked)
                if copied is not None:
                    done[line][at] = [copied]
                elif piece:
                    places.append((line, at))
                    sources.append(source)
        found = self._found(sources, requested, asked, settings)
        for (line, at), source in zip(places, sources, strict=True):
            parts = [self._part(source, hypothesis, align) for hypothesis in found[tuple(source)]]
            done[line][at] = [part for part in parts if part.text.strip()] or parts
        made = [
            with_copies(put_together(pieces, parts, self.source, self.target), shown)
            for pieces, parts, shown in zip(cut, done, masked, strict=True)
        ]
        return made[0] if isinstance(texts, str) else made

    def _found(
        self,
        sources: Sequence[list[int]],
        requested: RequestedWords,
        constraints: Constraints | None,
        settings: SearchSettings,
    ) -> dict[tuple[int, ...], list[Hypothesis]]:
        """Return the best targets of each source; one that comes again is searched for once, samples included."""
        distinct = list(dict.fromkeys(map(tuple, sources)))
        found = decode_requests(
            self._backend,
            distinct,
            [self._texts.request(source, requested, constraints, settings) for source in distinct],
            settings,
            never=self.target.special,
            text_of=self.target.decode if settings.n_best > 1 else None,
        )
        return dict(zip(distinct, found, strict=True))

    def stream(self, text: str, *, to: str | None = None, **changes: Any) -> Iterator[str]:
        """Return a translation piece by piece, each as soon as nothing can change it any more."""
        self._refresh()
        settings = self.with_changes(changes)
        (line,) = checked_texts([text], "texts")
        masked = self._texts.masked(line, to, settings, RequestedWords())
        for piece, space in self._texts.pieces(masked.text, whole=False):
            copied = self._texts.copied(piece, self.encoded(piece, to), None) if piece else None
            if copied is not None:
                yield masked.filled(copied.text)
            elif piece:
                yield from map(masked.filled, self._streamed(piece, to, settings))
            yield on_one_line(space)

    @overload
    def score(  # type: ignore[overload-overlap]
        self, sources: str, targets: str, *, to: str | None = None
    ) -> Hypothesis: ...
    @overload
    def score(self, sources: Sequence[str], targets: Sequence[str], *, to: str | None = None) -> list[Hypothesis]: ...
    def score(
        self, sources: str | Sequence[str], targets: str | Sequence[str], *, to: str | None = None
    ) -> Hypothesis | list[Hypothesis]:
        """Return what the model thinks of a translation, or of several: tokens, log-probabilities and scores.

        >>> import regard
        >>> model = regard.load("de-en")
        >>> good, bad = model.score(["Ich habe Hunger."] * 2, ["I'm hungry.", "I'm a door."], to="en")
        >>> good.score > bad.score
        True
        """
        if isinstance(sources, str) != isinstance(targets, str):
            raise InputError("one of sources and targets is a text and the other is not; both are, or neither")
        texts, translations = checked_texts(sources, "sources"), checked_texts(targets, "targets")
        if len(texts) != len(translations):
            raise InputError(f"{len(texts)} sources cannot be scored with {len(translations)} targets")
        pairs = [
            (self.encoded(source, to), self.target.encode(target))
            for source, target in zip(texts, translations, strict=True)
        ]
        scored = [
            Hypothesis(tokens, sum(logs) / len(logs) ** self.settings.length_penalty, sum(logs), cut=False)
            for (_, tokens), logs in zip(pairs, self.token_log_probabilities(pairs), strict=True)
        ]
        return scored[0] if isinstance(sources, str) else scored

    def token_log_probabilities(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return log p of each token of given targets under their sources, and of their end, in token numbers."""
        return token_log_probabilities(self._model, pairs)

    def decode(self, sources: Sequence[list[int]], **changes: Any) -> list[list[Hypothesis]]:
        """Search for targets of sources in token numbers, with their tags and ends; best first."""
        self._refresh()
        if isinstance(sources, str) or any(isinstance(source, str) for source in sources):
            raise InputError("decode takes the token numbers of each source; translate takes texts")
        requests = [Request(limit=self.limit(source)) for source in sources]
        settings = self.with_changes(changes)
        return decode_requests(self._backend, sources, requests, settings, never=self.target.special)

    def limit(self, source: Sequence[int]) -> int:
        """Return how many tokens the translation of a source may have."""
        return default_limit(self._backend, source)

    def encoded(self, text: str, to: str | None) -> list[int]:
        """Return the source tokens of a text: its language's tag, the text, its end."""
        return self._texts.encoded(text, to)

    @property
    def source_end(self) -> int:
        """The token that ends a source."""
        return self._backend.end

    def with_changes(self, changes: dict[str, Any]) -> SearchSettings:
        """Return the settings of this model with some of them changed."""
        given = {key: value for key, value in changes.items() if value is not None}
        wanted = given.get("n_best", 1)
        if "beam" not in given and isinstance(wanted, int) and wanted > self.settings.beam:
            given["beam"] = wanted
        settings = SearchSettings(**{**self.settings.model_dump(), **given})
        if settings.shortlist and self.shortlist is None:
            raise InputError("the model has no shortlist; `regard shortlist` makes one")
        return settings

    def _part(self, source: list[int], hypothesis: Hypothesis, align: bool) -> Part:
        text = on_one_line(self.target.decode(hypothesis.tokens))
        attention = self._attention(source, hypothesis.tokens).mean_TS()[:-1] if align else None
        return Part(text, hypothesis, source, attention)

    def attention(self, source: str, target: str, *, to: str | None = None) -> CrossAttention:
        """Return what each token of a translation attends to.

        >>> import regard
        >>> model = regard.load("de-en")
        >>> record = model.attention("Ich habe Hunger.", "I'm hungry.", to="en")
        >>> record.source[0], record.target[-1]
        ('<2en>', '</s>')
        """
        source, target = checked_texts([source], "source")[0], checked_texts([target], "target")[0]
        return self._attention(self.encoded(source, to), self.target.encode(target))

    def _attention(self, source: list[int], target: list[int]) -> CrossAttention:
        return CrossAttention(
            [self.source.token(number) for number in source],
            [self.target.token(number) for number in (*target, self._backend.end)],
            cross_attention(self._model, source, target),
        )

    def _streamed(self, piece: str, to: str | None, settings: SearchSettings) -> Iterator[str]:
        source = self.encoded(piece, to)
        request = self._texts.request(source, RequestedWords(), None, settings)
        settled: list[int] = []
        shown = ""
        for event in decode_stream(self._backend, source, request, settings, never=self.target.special):
            if isinstance(event, Settled):
                settled += event.tokens
            else:
                settled = event.hypotheses[0].tokens
            # Bytes of a character whose rest is still to come are left out, and come with it.
            text = on_one_line(self.target.decode(settled))
            yield text[len(shown) :]
            shown = text


def load(
    name: str | os.PathLike[str],
    *,
    precision: Literal["auto", "float", "int8"] = "auto",
    build: Callable[[TransformerConfig], Transformer] | None = None,
    device: str = "cpu",
) -> Pipeline:
    """Load a model, ready to translate: a directory, or the name of one that comes with the package.

    >>> import regard
    >>> regard.load("de-en").languages
    ['de', 'en']

    `precision` is "float" for the weights as they are, "int8" for rounded ones, "auto" for what is faster on this
    machine. `build` is the function from a config to a model that was given to `regard.train`, if one was. `device` is
    "cpu", "cuda", "mps", or "auto" for a GPU if there is one.
    """
    from regard import models

    prepare_process()
    return Pipeline.load(models.find(name), precision, build, device)
