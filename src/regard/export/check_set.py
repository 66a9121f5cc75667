"""What an export is checked on: token sequences with their tags and ends, and what they should become."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.data.evaluation_set import has_test_set, read_test_set
from regard.errors import InputError
from regard.export.sentences import SENTENCES
from regard.tasks.translation import Translator

LARGEST = 1000  # sequences
_SYNTHETIC = 64  # sequences, of each language
_LONGEST = 20  # tokens of such a one
_READABLE = 2000  # tokens that an export can read: positions are exported as a table


@dataclass(frozen=True)
class CheckSet:
    """Sources and targets in token numbers, and the targets as text, if people wrote them."""

    sources: list[list[int]]
    targets: list[list[int]]
    references: list[str] | None
    origin: str
    """Where they come from, in words."""


def check_set(
    pipeline: Translator,
    pairs: Sequence[tuple[str, str]] | None = None,
    *,
    language: str | None = None,
    directory: Path | None = None,
) -> CheckSet:
    """Return the given pairs; or the test set of the model's directory, built-in sentences or random tokens.

    Without a language, all that the model writes are checked, as far as there are sentences for them.
    """
    if pairs is not None:
        return _encoded(pipeline, [(source, target, language) for source, target in pairs[:LARGEST]], "sentences")
    if language is not None:
        pipeline.tag(language)  # refuses a language that the model does not write
    if directory is not None and has_test_set(directory):
        directions = read_test_set(directory, pipeline.languages, language)
        each = LARGEST // len(directions)
        texts = [(*pair, direction.target) for direction in directions for pair in direction.pairs[:each]]
        return _encoded(pipeline, texts, "sentences of the model's test set")
    if texts := built_in(pipeline, language):
        return _encoded(pipeline, texts, "built-in sentences")
    return _synthetic(pipeline, [language] if language else pipeline.languages or [None])


def built_in(pipeline: Translator, language: str | None) -> list[tuple[str, str, str | None]]:
    """Return sources, targets and languages of the built-in sentences that a model can be expected to read."""
    known = [name for name in pipeline.languages if name in SENTENCES[0]]
    return [
        (sentence[source], sentence[target], target)
        for target in ([language] if language else known)
        for source in known
        if source != target and target in known
        for sentence in SENTENCES
    ]


def _encoded(pipeline: Translator, texts: Sequence[tuple[str, str, str | None]], origin: str) -> CheckSet:
    config = pipeline.model.config
    longest = config.longest or _READABLE
    examples = [
        (pipeline.encoded(source, language), pipeline.target.encode(target), target)
        for source, target, language in texts
    ]
    # The start of a target takes a position, too.
    kept = [example for example in examples if len(example[0]) <= longest and len(example[1]) < longest]
    if not kept:
        raise InputError("there are no sentences to check the export on, or all are longer than the model can read")
    return CheckSet([one[0] for one in kept], [one[1] for one in kept], [one[2] for one in kept], origin)


def _synthetic(pipeline: Translator, languages: Sequence[str | None]) -> CheckSet:
    """Return random sources, and what the model itself makes of them."""
    config = pipeline.model.config
    longest = _LONGEST if config.longest is None else min(_LONGEST, config.longest - 3)
    words = [number for number in range(pipeline.source.vocab_size) if number not in {*pipeline.source.special}]
    generator = torch.Generator().manual_seed(0)
    sources = []
    for language in languages:
        tag = pipeline.tag(language)
        for number in range(_SYNTHETIC):
            numbers = torch.randint(len(words), (1 + number % max(1, longest),), generator=generator).tolist()
            sources.append([*([] if tag is None else [tag]), *(words[at] for at in numbers), pipeline.source_end])
    targets = [hypotheses[0].tokens for hypotheses in pipeline.decode(sources, beam=1)]
    return CheckSet(sources, targets, None, "random token sequences")
