"""Translation: texts of any length, sentence by sentence, into the language that is asked for."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, overload

from pydantic import Field

from regard.data.corpora import Example
from regard.data.placeholders import Masked
from regard.data.truecasing import CAPITALS, Truecaser
from regard.decoding import Constraints, Hypothesis, Request, SearchSettings
from regard.decoding.logits_processors import check_request
from regard.inference.pipeline import Pipeline
from regard.inference.results import CrossAttention
from regard.inference.texts import checked_texts, on_one_line
from regard.tasks.task import Task
from regard.tasks.translation_requests import RequestedWords, TextRequests
from regard.tasks.translation_result import MaskedPiece, Part, put_together
from regard.tasks.translation_result import Translation as Translation

_FEWEST_WITH_REQUIRED = 5  # hypotheses; fewer cannot both translate and wait for where a required word belongs


class TranslationTask(Task):
    """Texts with translations: fields `source` and `target`. Tags of corpora, such as <2de>, name the language."""

    kind: Literal["translation"] = "translation"
    sentences: Annotated[bool, Field(strict=True)] = True
    """Whether texts are cut into sentences, which are translated each by itself; if not, as for code, a text is
    translated whole."""


class Translator(Pipeline):
    """A model with its tokenizers, ready to translate. `regard.load` makes one from a directory."""

    kind: ClassVar[str] = "translation"
    verb: ClassVar[str] = "translate"
    unused_settings: ClassVar[tuple[str, ...]] = ()

    truecaser: Truecaser | None = None
    """What restores the capitals of a text without any, with the setting `fold_capitals`."""

    def _read_more(self, path: Path) -> None:
        if (path / CAPITALS).exists():
            self.truecaser = Truecaser.load(path / CAPITALS)

    @property
    def identity(self) -> str:
        """A digest of this model as it computes, the capitals that it restores included."""
        words = "" if self.truecaser is None else self.truecaser.to_json()
        return super().identity if not words else hashlib.sha256((super().identity + words).encode()).hexdigest()

    @cached_property
    def _texts(self) -> TextRequests:
        return TextRequests(self.source, self.target, self.truecaser)

    def _traits(self) -> list[tuple[str, str]]:
        return [("languages", " and ".join(self.languages))]

    @property
    def languages(self) -> list[str]:
        """The languages that the model was trained to be told to write."""
        return self._texts.languages

    def tag(self, to: str | None) -> int | None:
        """Return the token that asks for a language, if the model has any."""
        return self._texts.tag(to)

    def encoded(self, text: str, to: str | None = None) -> list[int]:
        """Return the source tokens of a text: its language's tag, the text, its end."""
        return self._with_tags(self._texts.tokens(text), self.tag(to))

    def check(
        self,
        to: str | None,
        changes: dict[str, Any],
        *,
        require: Sequence[str] = (),
        forbid: Sequence[str] = (),
        prefix: str = "",
    ) -> None:
        """Raise an `InputError` or a `ConfigError` where options of `translate` are wrong for every text."""
        self.tag(to)
        settings = self.with_changes(changes)
        requested = RequestedWords.checked(require, forbid, prefix)
        empty = [self.source_end]
        check_request(self._requested_of(empty, requested, self._texts.constraints(requested), settings), settings)

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
        constraints = self._texts.constraints(requested)
        cut: list[list[MaskedPiece]] = []
        done: list[list[list[Part]]] = []
        places: list[tuple[int, int]] = []
        sources: list[list[int]] = []
        masked = [self._texts.masked(line, to, settings, requested) for line in lines]
        for line, shown in enumerate(masked):
            cut.append(self._pieces(shown, whole=requested.something))
            done.append([[] for _ in cut[line]])
            for at, (piece, _, _) in enumerate(cut[line]):
                source = self.encoded(piece, to)
                copied = None if requested.something or not piece else self._copied(piece, source, constraints)
                if copied is not None:
                    done[line][at] = [copied]
                elif piece:
                    places.append((line, at))
                    sources.append(source)
        found = self._found(
            sources, settings, lambda source: self._requested_of(source, requested, constraints, settings)
        )
        for (line, at), source, hypotheses in zip(places, sources, found, strict=True):
            parts = [self._part(source, hypothesis, align) for hypothesis in hypotheses]
            done[line][at] = [part for part in parts if part.text.strip()] or parts
        made = [put_together(pieces, parts, self.source, self.target) for pieces, parts in zip(cut, done, strict=True)]
        return made[0] if isinstance(texts, str) else made

    @property
    def task(self) -> Task:
        """The task, with its settings."""
        return self._task if isinstance(self._task, Task) else TranslationTask()

    def predictions(self, examples: Sequence[Example], **changes: Any) -> list[str]:
        """Return the translations of examples, as metrics compare them."""
        made = self.translate([self.task.source(example) for example in examples], **changes)
        return [self.task.answer(one.text) for one in made]

    def stream(self, text: str, *, to: str | None = None, **changes: Any) -> Iterator[str]:
        """Return a translation piece by piece, each as soon as nothing can change it any more."""
        self._refresh()
        settings = self.with_changes(changes)
        (line,) = checked_texts([text], "texts")
        masked = self._texts.masked(line, to, settings, RequestedWords())
        for piece, space, shown in self._pieces(masked, whole=False):
            if piece:
                source = self.encoded(piece, to)
                copied = self._copied(piece, source, None)
                request = self._requested_of(source, RequestedWords(), None, settings)
                parts = self._streamed(source, request, settings) if copied is None else [copied.text]
                yield from (shown.filled(on_one_line(part)) for part in parts)
            yield on_one_line(space)

    def _pieces(self, shown: Masked, *, whole: bool) -> list[MaskedPiece]:
        if not self._by_sentence:
            return self._texts.uncut(shown, self._backend.longest - 2)
        return self._texts.pieces(shown, self._backend.longest, whole=whole)

    def _copied(self, piece: str, source: list[int], constraints: Constraints | None) -> Part | None:
        return self._texts.copied(piece, source, constraints, opaque=self._by_sentence)

    @property
    def _by_sentence(self) -> bool:
        task = self.task
        return not isinstance(task, TranslationTask) or task.sentences

    def _requested_of(
        self,
        source: Sequence[int],
        requested: RequestedWords,
        constraints: Constraints | None,
        settings: SearchSettings,
    ) -> Request:
        return self._texts.request(source, requested, constraints, partial(self.limit, source, settings))

    def _part(self, source: list[int], hypothesis: Hypothesis, align: bool) -> Part:
        text = on_one_line(self.target.decode(hypothesis.tokens))
        attention = self._attention(source, hypothesis.tokens).mean_TS()[:-1] if align else None
        return Part(text, hypothesis, source, attention)

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
        return self._scored(sources, targets, partial(self.encoded, to=to))

    def attention(self, source: str, target: str, *, to: str | None = None) -> CrossAttention:
        """Return what each token of a translation attends to.

        >>> import regard
        >>> model = regard.load("de-en")
        >>> record = model.attention("Ich habe Hunger.", "I'm hungry.", to="en")
        >>> record.source[0], record.target[-1]
        ('<2en>', '</s>')
        """
        return self._weights(source, target, partial(self.encoded, to=to))
