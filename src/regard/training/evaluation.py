"""A model of a run, validated on data of the run's kind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.corpora import Corpus
from regard.data.tokenizer import TOKENIZER
from regard.devices import resolve_device
from regard.errors import ConfigError, ModelError
from regard.files import read_json
from regard.model import Transformer, TransformerConfig
from regard.tasks import Score
from regard.training.preparation import encoded_examples, longest_readable, tokenizers, with_known_tasks
from regard.training.recipe import Run, Validation
from regard.training.run_lock import RUN_FILE
from regard.training.validation import ValidationResult, Validator


def read_run(directory: Path) -> Run:
    """Read the run that a directory belongs to."""
    if directory.is_dir() and not (directory / RUN_FILE).exists():
        raise ModelError(
            f"{directory / RUN_FILE} is missing: {directory} is not the directory of a run; "
            "--run names the one whose validation data it is evaluated on"
        )
    try:
        return Run.model_validate(read_json(directory / RUN_FILE))
    except ConfigError as error:
        raise ModelError(f"{directory / RUN_FILE}: {error}") from None


class Evaluation(NamedTuple):
    """The loss on validation data, and the scores of each task."""

    result: ValidationResult
    scores: dict[str, list[Score]]


def evaluate_run(
    model: Path,
    run_directory: Path,
    *,
    metric: str | None = None,
    beam: int | None = None,
    device: str = "cpu",
) -> ValidationResult:
    """Validate a model directory on the run's validation data, on a device."""
    changes = {key: value for key, value in (("metric", metric), ("beam", beam)) if value is not None}
    place, weights = resolve_device(device), Transformer.load(model)
    return _validator(run_directory, weights.config, None, changes).validate(weights.to(place))


def evaluate_run_by_task(
    model: Path, run_directory: Path, *, beam: int | None, bootstrap: int, device: str = "cpu"
) -> Evaluation:
    """Validate a model directory on the run's validation data, by all metrics of each task, on a device."""
    changes: dict[str, Any] = {"metric": "loss", **({} if beam is None else {"beam": beam})}
    place, weights = resolve_device(device), Transformer.load(model)
    validator = _validator(run_directory, weights.config, None, changes)
    weights.to(place)
    return Evaluation(validator.validate(weights), validator.scores_by_task(weights, bootstrap))


def score_run(
    model: Path,
    run_directory: Path,
    *,
    metrics: Sequence[str],
    beam: int,
    corpora: tuple[Corpus, ...] | None = None,
) -> dict[str, Score]:
    """Score what a model writes by several metrics, on the run's validation data or on other corpora."""
    weights = Transformer.load(model)
    validator = _validator(run_directory, weights.config, corpora, {"metric": metrics[0], "beam": beam})
    return validator.scores(weights, metrics)


def _validator(
    run_directory: Path, config: TransformerConfig, corpora: tuple[Corpus, ...] | None, changes: dict[str, Any]
) -> Validator:
    run = with_known_tasks(read_run(run_directory), run_directory)
    if not (run_directory / TOKENIZER).exists():
        raise ModelError(f"{run_directory / TOKENIZER} is missing; a run writes it when it starts")
    corpora = run.data.valid if corpora is None else corpora
    if not corpora:
        raise ConfigError(
            f"{run_directory}: its run has no validation data (data.valid); "
            f"regard evaluate --model {run_directory} --data FILE scores it on a file"
        )
    run = run.model_copy(update={"validation": Validation(**{**run.validation.model_dump(), **changes})})
    run.check()
    sides = tokenizers(run, run_directory, lambda _: None)
    examples, _ = encoded_examples(run, corpora, *sides, longest_readable(config))
    return Validator(run, corpora, examples, sides)
