"""Java to C# and back, from scratch: `python -m benchmarks.tasks.java_csharp --data DIR --out DIR --minutes 60`.

One model for both directions, scored as CodeXGLUE does (code-to-code-trans): corpus BLEU-4 over whitespace tokens with
one added to matches and possible matches of every order, and exact match of stripped lines.
"""

from pathlib import Path
from typing import Any

import torch

from benchmarks.pages import table, write_page
from benchmarks.tasks.runs import Budget, corpus_in, described, in_words, parser_of, trained
from benchmarks.variations.loop import once
from regard.data import ParallelFiles
from regard.tasks import score
from regard.training.evaluation import score_run

METRICS = ("code_bleu4", "code_exact")
DIRECTIONS = {"Java to C#": ("java", "cs"), "C# to Java": ("cs", "java")}
PUBLISHED = {"Java to C#": (55.84, 33.0), "C# to Java": (50.47, 37.9)}
"""Of a Transformer from scratch, in CodeXGLUE's README."""


def corpora(directory: Path) -> dict[str, ParallelFiles]:
    """Return the test methods in each direction."""
    return {
        direction: ParallelFiles(
            source=directory / f"test.{source}", target=directory / f"test.{target}", tag=f"<2{target}>"
        )
        for direction, (source, target) in DIRECTIONS.items()
    }


def copied(corpus: ParallelFiles) -> dict[str, float]:
    """Return the scores of the source as it is."""
    sources, targets = zip(*corpus.read(), strict=True)
    return {metric: score(metric, sources, targets).value for metric in METRICS}


def written(model: Path, corpus: ParallelFiles, beam: int) -> dict[str, float]:
    """Return the scores of what a model writes; a run's validation decodes methods whole."""
    # The first is one of translation's own metrics, as a run's validation needs it.
    found = score_run(model, model, metrics=("exact", *METRICS), beam=beam, corpora=(corpus,))
    return {metric: found[metric].value for metric in METRICS}


def page(results: dict[str, Any], about: str, beam: int) -> list[str]:
    """Return the table."""
    rows = []
    for direction, (bleu, exact) in PUBLISHED.items():
        for name in ("model", "copied"):
            found = results[direction][name]
            what = "this model" if name == "model" else "the source as it is"
            rows.append([f"{direction}, {what}", *(f"{found[metric]:.2f}" for metric in METRICS)])
        rows.append([f"{direction}, published Transformer", f"{bleu:.2f}", f"{exact:.1f}"])
    return [
        f"1,000 test methods, beam {beam}. One model for both directions, which a tag names: {about}. The published",
        "ones are CodeXGLUE's, trained from scratch, one for each direction.",
        "",
        *table(["", "BLEU-4", "exact match"], rows),
    ]


def main() -> None:
    """Train and score what is not there yet, and write the page."""
    parser = parser_of(__doc__)
    parser.add_argument("--model", type=Path, help="the directory of a run of java-csharp.toml, in place of training")
    parser.add_argument("--beam", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    out, beam = arguments.out, arguments.beam
    tests = corpora(corpus_in(out, "java-csharp", arguments.data))
    model = arguments.model or trained("java-csharp", out, "java-csharp", Budget.of(arguments))
    results = once(
        out / f"java-csharp-{model.name}-beam{beam}.json",
        lambda: {
            direction: {"model": written(model, corpus, beam), "copied": copied(corpus)}
            for direction, corpus in tests.items()
        },
    )
    command = "python -m benchmarks.tasks.java_csharp --data DIR --out DIR"
    lines = page(results, in_words(described(model)), beam)
    write_page(arguments.results, "java-csharp", "Java and C#", command, lines)


if __name__ == "__main__":
    main()
