"""From a run file to what training needs: tokenizers, encoded corpora, the description of the model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from regard.data import EncodedCorpus, Tokenizer, encode_corpus
from regard.data.corpora import Corpus
from regard.data.token_store import LONGEST_LINE, is_oversized
from regard.data.tokenizer import SOURCE_TOKENIZER, TOKENIZER, load_tokenizers
from regard.errors import ConfigError, DataError, InputError
from regard.model import TransformerConfig
from regard.tasks.directory import TASKS_FILE, read_tasks, write_tasks
from regard.training.examples import Examples, Limit
from regard.training.recipe import Run, cache_directory

Tell = Callable[[str], None]


class Sides(NamedTuple):
    """The tokenizers of both sides."""

    source: Tokenizer
    target: Tokenizer


@dataclass(frozen=True)
class Prepared:
    """What a run trains on."""

    source: Tokenizer
    target: Tokenizer
    model: TransformerConfig
    train: Examples
    valid: Examples | None
    fingerprints: list[str]
    """The content of each corpus under these tokenizers."""
    run: Run
    """The run, its tasks with what they have to know of the training data."""


def prepare(run: Run, out: Path, tell: Tell) -> Prepared:
    """Train or read the tokenizers, encode the corpora or find them encoded."""
    run = with_known_tasks(run, out)
    source, target = tokenizers(run, out, tell)
    model = run.model_config_for(source.vocab_size, target.vocab_size)
    readable = longest_readable(model)
    # What a task has cut into parts is as long as it should be.
    limits = [Limit("data.max_length", max(run.data.max_length, *(task.longest_part for task in run.task)))]
    if readable is not None:
        limits.append(readable)
    if model.random_positions is not None:
        limits.append(Limit("model.random_positions", model.random_positions))
    limit = min(limits, key=lambda limit: limit.tokens)
    train, fingerprints = encoded_examples(run, run.data.train, source, target, limit)
    _report("training", train, tell)
    valid = None
    if run.data.valid:
        valid, more = encoded_examples(run, run.data.valid, source, target, readable)
        fingerprints += more
        _report("validation", valid, tell)
    return Prepared(source, target, model, train, valid, fingerprints, run)


def with_known_tasks(run: Run, out: Path) -> Run:
    """Return the run with what its tasks have to know of their training data, which is kept in its directory."""
    if (out / TASKS_FILE).exists():
        kept = {task.kind: task for task in read_tasks(out, own=run.task)}
        return run.model_copy(update={"task": tuple(kept.get(task.kind, task) for task in run.task)})
    corpora = {task.kind: [c for c in run.data.train if run.task_of(c) is task] for task in run.task}
    tasks = tuple(
        task.learned_from(example for corpus in corpora[task.kind] for example in corpus.examples(task.fields))
        for task in run.task
    )
    write_tasks(out, tasks)
    return run.model_copy(update={"task": tasks})


def longest_readable(model: TransformerConfig) -> Limit | None:
    """Return how long a sequence a model can read, where there is an end to it."""
    limits = model.limits()
    return min((Limit(key, tokens) for key, tokens in limits.items()), key=lambda limit: limit.tokens, default=None)


def tokenizers(run: Run, out: Path, tell: Tell) -> Sides:
    """Return the tokenizers of both sides: the run's directory's, the run file's, or newly trained ones."""
    settings = run.tokenizer
    if (out / TOKENIZER).exists():
        source, target = load_tokenizers(out)
        for named, found in ((settings.source, source), (settings.target, target)):
            if named is not None and Tokenizer.load(named).to_json() != found.to_json():
                raise ConfigError(f"{out} was made with another tokenizer than {named}; choose another directory")
        return Sides(source, target)
    if settings.source is not None:
        source = Tokenizer.load(settings.source)
        target = source if settings.target is None else Tokenizer.load(settings.target)
        _check_tags(source, run, settings.source)
    elif (beginning := run.training.start_from) is not None:
        source, target = load_tokenizers(beginning)
        _check_tags(source, run, beginning / TOKENIZER)
    elif settings.shared:
        source = target = _trained(run, (0, 1), tell)
    else:
        source, target = _trained(run, (0,), tell), _trained(run, (1,), tell)
    if source is not target:
        source.save(out / SOURCE_TOKENIZER)
    target.save(out / TOKENIZER)  # last: with it, the tokenizers are complete
    return Sides(source, target)


def _trained(run: Run, sides: tuple[int, ...], tell: Tell) -> Tokenizer:
    def texts() -> Iterator[str]:
        for corpus in run.data.train:
            task = run.task_of(corpus)
            for example in corpus.read_examples(task.fields):  # noisy forms have nothing to learn words from
                if not is_oversized(example, task):
                    yield from (text for side, text in enumerate(task.texts(example)) if side in sides)

    settings = run.tokenizer
    tokenizer = Tokenizer.train(
        texts(),
        vocab_size=settings.vocab_size,
        kind=settings.kind,
        tags=run.tags,
        split_punctuation=settings.split_punctuation,
    )
    which = "both sides" if len(sides) == 2 else "the target" if sides == (1,) else "the source"
    tell(f"tokenizer for {which}: {settings.kind}, {tokenizer.vocab_size:,} tokens")
    return tokenizer


def _check_tags(source: Tokenizer, run: Run, path: Path) -> None:
    for tag in run.tags:
        try:
            source.number(tag)
        except InputError:
            raise DataError(f"{path} has no token {tag!r}, which a corpus of the run puts before its sources") from None


def encoded_examples(
    run: Run, corpora: tuple[Corpus, ...], source: Tokenizer, target: Tokenizer, limit: Limit | None = None
) -> tuple[Examples, list[str]]:
    """Encode corpora, or find them encoded; return their examples, and what each holds in a few letters."""
    cache = cache_directory(run.data)
    encoded: list[EncodedCorpus] = [
        encode_corpus(corpus, run.task_of(corpus), source, target, cache) for corpus in corpora
    ]
    examples = Examples(
        encoded,
        source,
        target,
        tags=[run.tag_of(corpus) for corpus in corpora],
        weights=[corpus.weight for corpus in corpora],
        limit=limit,
        shape=run.shape,
    )
    return examples, [corpus.fingerprint for corpus in encoded]


def _report(name: str, examples: Examples, tell: Tell) -> None:
    text = f"{name}: {len(examples):,} pairs"
    if examples.empty:
        text += f"; {examples.empty:,} with an empty side left out"
    if examples.oversized:
        text += f"; {examples.oversized:,} with a line of more than {LONGEST_LINE:,} characters left out"
    if examples.left_out:
        text += f"; {examples.left_out:,} longer than {examples.limit} left out"
    tell(text)
