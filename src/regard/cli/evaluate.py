"""`regard evaluate`: how good a model is, on its run's validation data, its test set or files."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.option_groups import with_option_groups
from regard.cli.runtime import Runtime
from regard.cli.search_options import SearchOptions, option_name
from regard.errors import DataError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.data.evaluation_set import Direction
    from regard.tasks import Score
    from regard.tasks.translation import Translator

_file_option = partial(typer.Option, rich_help_panel="On a test set or on files")


@dataclass(frozen=True)
class EvaluationSet:
    """The test set that a model is scored on; without files, the model's own."""

    source: Annotated[Path | None, _file_option(help="Source file; by default the model's own test set.")] = None
    reference: Annotated[Path | None, _file_option(help="File of reference translations.")] = None
    data: Annotated[Path | None, _file_option(help="Examples: JSON lines, tsv, SQuAD (.json), bAbI (.txt).")] = None
    task: Annotated[str | None, _file_option(help="Task, for a model of several.")] = None
    to: Annotated[str | None, _file_option(help="Target language; by default all.")] = None
    bootstrap: Annotated[int | None, _file_option(min=2, help="Samples for the 95 % intervals; 1000.")] = None


@with_option_groups
def evaluate(
    *,
    directory: Annotated[Path | None, typer.Argument(help="Run directory, or with --run a snapshot of it.")] = None,
    metric: Annotated[str | None, typer.Option(help="One metric of a run's task; by default all.")] = None,
    run: Annotated[Path | None, typer.Option(help="Run that has the validation data.")] = None,
    model: Annotated[str | None, _file_option(help="Model directory or packaged model.")] = None,
    files: EvaluationSet,
    search: SearchOptions,
    runtime: Runtime,
) -> None:
    """Score a model by the metrics of its task, on its run's validation data, on its own test set, or on files.

    Search and sampling options that are not given are the model's own (generation.json); a run takes --beam only.
    """
    if model is not None:
        if directory is not None or run is not None or metric is not None:
            raise InputError(
                "a run directory, --run and --metric do not go with --model, which is scored by all metrics of its task"
            )
        if (files.source is None) != (files.reference is None):
            raise InputError("--source and --reference go together; without both, the model's own test set is used")
        pipeline = runtime.load(model, files.task)
        if pipeline.kind == "translation" and files.data is None:
            _evaluate_model(pipeline, model, files, search)
        else:
            _evaluate_task(pipeline, model, files, search)
        return
    if directory is None or files != EvaluationSet():
        raise InputError(
            "give the directory of a run, or --model; --source, --reference, --data and --to go with --model"
        )
    refused = [option_name(name) for name in search if name != "beam"]
    if runtime.precision != "auto":
        refused.append("--precision")
    if refused:
        raise InputError(f"{refused[0]} needs --model; the evaluation of a run takes --beam only")
    from regard import models

    if str(directory) in models.names() and not directory.exists():
        raise InputError(f"{directory} is a model in the package, not a run: regard evaluate --model {directory}")
    runtime.set_threads()
    _evaluate_run(directory, run or directory, metric, search.get("beam"), runtime.device)


def _evaluate_run(directory: Path, run: Path, metric: str | None, beam: int | None, device: str) -> None:
    from regard.training.evaluation import evaluate_run, evaluate_run_by_task, read_run

    if metric is None:
        result, scores = evaluate_run_by_task(directory, run, beam=beam, bootstrap=1000, device=device)
    else:
        result, scores = evaluate_run(directory, run, metric=metric, beam=beam, device=device), {}
    if read_run(run).shape == "encoder-only":
        typer.echo(f"loss {result.loss:.4f} per example")
    else:
        typer.echo(f"loss {result.loss:.4f} per token, perplexity {result.perplexity:.2f}")
    if result.score is not None:
        typer.echo(result.score.text)
        typer.echo(f"signature {result.score.signature}")
    for kind, found in scores.items():
        typer.echo(kind)
        _print_scores(found)


def _print_scores(scores: "Sequence[Score]") -> None:
    for score in scores:
        low, high = score.interval or (score.value, score.value)
        typer.echo(f"{score.name:12} {score.value:6.2f}  95 % interval {low:.2f} to {high:.2f}  {score.signature}")


def _evaluate_task(pipeline: Any, model: str, files: EvaluationSet, search: dict[str, Any]) -> None:
    from regard import models
    from regard.cli.progress import progress
    from regard.tasks.evaluation import TEST_SET, check_has_metrics, corpus_of, evaluate_examples

    if files.source is not None or (files.to is not None and pipeline.kind != "translation"):
        raise InputError(f"--source, --reference and --to are for translation; {pipeline.kind} takes --data")
    if pipeline.shape == "encoder-only" and search:
        raise InputError(f"{option_name(next(iter(search)))} is for models that write; {pipeline.kind} does not search")
    path = files.data or models.find(model) / TEST_SET
    if not path.exists():
        hint = "" if files.data else "; --data FILE names the examples for a model without a test set"
        raise DataError(f"{path} is missing{hint}")
    if pipeline.shape == "decoder-only":
        _print_perplexity(pipeline, path, files.bootstrap, search)
        return
    check_has_metrics(pipeline.task)
    examples = list(corpus_of(path).examples(pipeline.task.fields))
    changes = {**search, **({"to": files.to} if files.to is not None else {})}
    if pipeline.kind == "translation":
        pipeline.check(files.to, search)
    elif search:
        pipeline.with_changes(search)
    try:
        with progress(len(examples)) as moved:
            bootstrap = files.bootstrap or 1000
            scores = evaluate_examples(pipeline, examples, bootstrap=bootstrap, advance=moved.by, **changes)
    except InputError as error:  # the options are right: it is an example that the model cannot take
        raise DataError(f"{path}: {error}") from None
    typer.echo(f"{pipeline.kind}, {len(examples):,} examples")
    _print_scores(scores)


def _print_perplexity(pipeline: Any, path: Path, bootstrap: int | None, search: dict[str, Any]) -> None:
    """Print the perplexity of JSON lines with texts, or of a text file as a whole."""
    from regard.data import JsonLines, TextFiles

    if search:
        raise InputError(f"{option_name(next(iter(search)))} is for what a model writes; a perplexity needs no search")
    if bootstrap is not None:
        raise InputError("--bootstrap is for the intervals of scores; a perplexity has none")
    is_text = path.name.removesuffix(".gz").endswith(".txt")
    corpus = TextFiles(path=path, whole=True) if is_text else JsonLines(path=path)
    texts = [example["text"] for example in corpus.examples(("text",))]
    typer.echo(f"{pipeline.kind}, {len(texts):,} text{'s' * (len(texts) != 1)}")
    typer.echo(f"perplexity {pipeline.perplexity(texts):.2f}")


def _evaluate_model(pipeline: "Translator", model: str, files: EvaluationSet, search: dict[str, Any]) -> None:
    from regard import models
    from regard.data.evaluation_set import read_test_set

    to = files.to
    if files.source is not None and files.reference is not None:
        pipeline.check(to, search)
        directions = [_read_files(files.source, files.reference, to)]
    else:
        if to is not None:
            pipeline.tag(to)  # refuses a language that the model does not know
        pipeline.with_changes(search)
        directions = read_test_set(models.find(model), pipeline.languages, to)
    for number, direction in enumerate(directions):
        if number:
            typer.echo("")
        _evaluate_direction(pipeline, direction, search, files.bootstrap or 1000)


def _read_files(source: Path, reference: Path, to: str | None) -> "Direction":
    from regard.data.corpora import read_lines
    from regard.data.evaluation_set import Direction
    from regard.inference.jobs import count_lines

    counts = {path: count_lines(path)[0] for path in (source, reference)}
    if counts[source] != counts[reference]:
        raise DataError(
            f"{source} has {counts[source]:,} lines, {reference} {counts[reference]:,}; "
            "both files need the same number of lines"
        )
    return Direction(None, to, list(zip(read_lines(source), read_lines(reference), strict=True)))


def _evaluate_direction(pipeline: "Translator", direction: "Direction", search: dict[str, Any], bootstrap: int) -> None:
    from regard.cli.progress import progress
    from regard.tasks import score

    sources, references = ([pair[side] for pair in direction.pairs] for side in (0, 1))
    texts: list[str] = []
    with progress(len(sources)) as moved:
        for first in range(0, len(sources), 256):
            made = pipeline.translate(sources[first : first + 256], to=direction.target, **search)
            texts += [translation.text for translation in made]
            moved.by(len(made))
    bleu, chrf = (score(name, texts, references, bootstrap=bootstrap) for name in ("bleu", "chrf"))
    where = f"{direction}, " if str(direction) else ""
    typer.echo(f"{where}{len(sources):,} pairs: {bleu.value:.1f} BLEU, {chrf.value:.1f} chrF")
    for found in (bleu, chrf):
        typer.echo(found.text.replace(" (BP", "\n  (BP"))  # a line for the score, one for its details
        typer.echo(found.signature)
