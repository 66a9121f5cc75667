"""What a checkout computes: translations with their scores, and losses.

A process prints it as JSON; its argument is the old checkout, whose model both use.
"""

import json
import statistics
from typing import NamedTuple

from benchmarks.refactor.workload import INT8, TINY, model_directory, reports_of_training, sentences

SENTENCES = 2000
SEARCHES = (("int8", 5), ("int8", 1), ("float", 5))
SEEDS = (1, 2, 3)
TIE = 1e-4
"""Texts may differ where the scores of both are closer than this."""


class Outputs(NamedTuple):
    """What one checkout computes."""

    translations: list[list[tuple[str, float]]]
    """Texts and scores, by search."""
    losses: list[float]
    """Of five steps in float32."""
    int8_losses: list[float]
    """The mean of 300 steps in int8, by seed."""


def outputs() -> Outputs:
    """Compute everything with the package that is imported."""
    import regard

    translations = []
    for precision, beam in SEARCHES:
        pipeline = regard.load(model_directory(), precision=precision)  # type: ignore[call-overload]
        found = pipeline.translate(sentences(SENTENCES), to="en", beam=beam)
        translations.append([(one.text, one.score) for one in found])
    losses = [report["loss"] for report in reports_of_training(TINY, 'report_every = 1, precision = "float32"', 5)]
    int8_losses = [
        statistics.fmean(
            report["loss"]
            for report in reports_of_training(TINY, f"report_every = 1, seed = {seed}, {INT8}", 300, 1024)
        )
        for seed in SEEDS
    ]
    return Outputs(translations, losses, int8_losses)


def differences(before: Outputs, after: Outputs) -> str:
    """Return how the outputs of two checkouts differ, as Markdown."""
    lines = ["What both compute:", ""]
    for (precision, beam), old, new in zip(SEARCHES, before.translations, after.translations, strict=True):
        other = [abs(one[1] - two[1]) for one, two in zip(old, new, strict=True) if one[0] != two[0]]
        ties = sum(difference < TIE for difference in other)
        lines.append(
            f"- {len(new):,} sentences, {precision}, beam {beam}: {len(other)} texts differ, {ties} of them are ties "
            f"closer than {TIE}; scores differ by at most "
            f"{max(abs(one[1] - two[1]) for one, two in zip(old, new, strict=True)):.1e}"
        )
    largest = max(abs(one - two) for one, two in zip(before.losses, after.losses, strict=True))
    lines.append(f"- five steps of Tiny in float32: losses differ by at most {largest:.1e}")
    old_int8, new_int8 = (
        ", ".join(f"{loss:.4f}" for loss in losses) for losses in (before.int8_losses, after.int8_losses)
    )
    lines.append(f"- 300 steps of Tiny in int8, mean loss for seeds 1, 2 and 3: before {old_int8}; after {new_int8}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(json.dumps(outputs()))
