"""`regard score`: log-probabilities of given translations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.option_groups import with_option_groups
from regard.cli.outputs import Format, Result
from regard.cli.runtime import Runtime, runtime_option
from regard.cli.text_jobs import FileJob, TextJob
from regard.errors import DataError, InputError

if TYPE_CHECKING:
    from regard.tasks.translation import Translator


@dataclass(frozen=True)
class FloatRuntime(Runtime):
    """The device, the threads and the precision of a verb that computes with the weights as they are."""

    precision: Annotated[str, runtime_option(help="float: scores are of the weights as they are.")] = "float"


@dataclass(frozen=True)
class Scores:
    """The log-probability of a translation and its score, as a line has them."""

    log_probability: float
    score: float
    alternatives: Sequence[Result] = ()

    @property
    def text(self) -> str:
        """Both numbers, separated by a tab."""
        return f"{self.log_probability:.4f}\t{self.score:.4f}"

    def content(self) -> dict[str, Any]:
        """Return both numbers by their names."""
        return {"log_probability": self.log_probability, "score": self.score}

    def warnings(self) -> Iterable[str]:
        """Return nothing."""
        return ()


@with_option_groups
def score(
    *,
    model: Annotated[str, typer.Option(help="A model directory, or the name of a model in the package.")] = "de-en",
    to: Annotated[str | None, typer.Option(help="The language that the targets are in.")] = None,
    job: FileJob,
    runtime: FloatRuntime,
) -> None:
    """Print the log-probability of each given translation, and its score: log P / length^α.

    A line of standard input or of --input has a source and a target, separated by a tab. Lines come out in order, one
    for one, blank for blank.
    """
    job.check(None)
    if runtime.precision == "int8":
        raise InputError("--precision int8 is for decoding; scores are of the weights as they are")
    pipeline: Translator = runtime.load(model, "translation")
    pipeline.check(to, {})

    def run(lines: list[str]) -> list[Scores]:
        pairs = [_pair(line) for line in lines]
        found = pipeline.score([source for source, _ in pairs], [target for _, target in pairs], to=to)
        return [Scores(one.log_probability, one.score) for one in found]

    TextJob(
        run=run,
        form=Format.text,
        identity=lambda: {"to": to, "model": pipeline.identity},
        blank=("log_probability", "score"),
    ).start(None, job)


def _pair(line: str) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab or "\t" in target:
        raise DataError("it is not a source and a target with a tab between")
    return source, target
