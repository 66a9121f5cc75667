"""Classification and a language model of characters: `python -m benchmarks.tasks.docstrings --out DIR`.

The data is made of the docstrings of installed packages by examples/docstrings.py: nothing is downloaded, and another
version of a package has other docstrings. `--data` is not used.
"""

import json
import lzma
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.pages import table, write_page
from benchmarks.tasks.runs import Budget, cell, described, in_words, parser_of, scored, trained
from benchmarks.variations.loop import once
from examples.docstrings import main as make_data
from regard.data import JsonLines
from regard.data.corpora import Example
from regard.data.similarity import TfIdf
from regard.training.evaluation import evaluate_run

METRICS = ("accuracy", "macro_f1")


def read(out: Path, name: str, part: str, fields: tuple[str, ...]) -> list[Example]:
    """Return a part of the data, which is made unless it is there."""
    if not (out / "data" / name / "train.jsonl").exists():
        make_data(out / "data")
    return list(JsonLines(path=out / "data" / name / f"{part}.jsonl").examples(fields))


def label_baselines(train: Sequence[Example], test: Sequence[Example]) -> dict[str, list[str]]:
    """Return the most frequent label for all texts, and that of the most similar training text."""
    labels = [example["label"] for example in train]
    index = TfIdf([example["text"] for example in train])
    return {
        "most frequent label": [Counter(labels).most_common(1)[0][0]] * len(test),
        "label of the most similar training text": [labels[index.nearest(example["text"])] for example in test],
    }


def topics(out: Path, budget: Budget) -> dict[str, Any]:
    """Return the scores of the classifier and of the baselines."""
    train, test = (read(out, "topics", part, ("text", "label")) for part in ("train", "test"))
    model = trained("topics", out, "topics", budget)
    answers = {"model": regard.load(model, task="classification").predictions(test), **label_baselines(train, test)}
    references = [example["label"] for example in test]
    scores = {name: scored(METRICS, some, references) for name, some in answers.items()}
    return {"model": described(model), "scores": scores, "texts": [len(train), len(test)]}


def compressed_bits(train: str, text: str) -> float:
    """Return the bits that LZMA needs for a character of a text, having read another."""
    both, alone = (len(lzma.compress(some.encode(), preset=9)) for some in (train + text, train))
    return 8.0 * (both - alone) / len(text)


def characters(out: Path, budget: Budget) -> dict[str, Any]:
    """Return the bits for a character by the model, and by a compressor."""
    train, valid = (
        "\n\n".join(example["text"] for example in read(out, "characters", part, ("text",)))
        for part in ("train", "valid")
    )
    model = trained("characters", out, "characters", budget)
    return {
        "model": described(model),
        "bits": evaluate_run(model, model).loss / math.log(2.0),
        "lzma": compressed_bits(train, valid),
        "characters": [len(train), len(valid)],
        "sample": regard.load(model).generate("Return the ", sample=True, temperature=0.7, seed=1, max_length=300).text,
    }


def page(found: dict[str, Any], text: dict[str, Any]) -> list[str]:
    """Return both tables."""
    train, test = found["texts"]
    rows = [[name, *(cell(some[metric]) for metric in METRICS)] for name, some in found["scores"].items()]
    read_of, validated = text["characters"]
    return [
        "## Topics",
        "",
        "Which package the first paragraph of a docstring is from (networkx, sympy, torch, the standard library):",
        f"{train:,} to learn from, {test:,} of other modules to test. {in_words(found['model'])}.",
        "95 % intervals by bootstrap.",
        "",
        *table(["", "accuracy", "macro F1"], rows),
        "",
        "## Characters",
        "",
        f"Docstrings of the standard library: {read_of:,} characters to learn from, {validated:,} of other modules to",
        f"validate, on which nothing was chosen. {in_words(text['model'])}.",
        "",
        *table(
            ["", "bits a character"],
            [["model", f"{text['bits']:.2f}"], ["LZMA, having read the same", f"{text['lzma']:.2f}"]],
        ),
        "",
        "What it goes on with after `Return the `, sampled at temperature 0.7:",
        "",
        "```",
        text["sample"],
        "```",
    ]


def main() -> None:
    """Train and score what is not there yet, and write the page."""
    arguments = parser_of(__doc__).parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    out, budget = arguments.out, Budget.of(arguments)
    found = once(out / "topics.json", lambda: topics(out, budget))
    text = once(out / "characters.json", lambda: characters(out, budget))
    command = "python -m benchmarks.tasks.docstrings --out DIR"
    write_page(arguments.results, "docstrings", "Topics and characters of docstrings", command, page(found, text))
    print(json.dumps({"topics": found["scores"], "bits": text["bits"]}, indent=1))


if __name__ == "__main__":
    main()
