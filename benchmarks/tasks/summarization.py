"""Summarization beside baselines: `python -m benchmarks.tasks.summarization --corpus acl-titles --data DIR --out DIR`.

The corpus is split by distinct document and distinct summary (`regard data split`): 2,000 documents for validation,
2,000 for testing, the others for training. `--model DIR` scores a model that was trained on this split already. The
model of synopses reads those of the most similar training documents before each document (`regard data similar`).
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.pages import table, write_page
from benchmarks.tasks.baselines import Document, baselines, oracle
from benchmarks.tasks.runs import Budget, cell, corpus_in, described, in_words, parser_of, scored, trained
from benchmarks.variations.loop import once
from regard.data import JsonLines
from regard.data.reading import read_lines
from regard.data.similarity import SimilarDocuments
from regard.data.splits import split_documents, write_split
from regard.files import replaced_file
from regard.training.callbacks import METRICS

FILES = {"acl-titles": ("acl-titles.jsonl", "titles", 0), "synopsis": ("debian-synopsis.jsonl", "synopsis", 3)}
"""The file of each corpus, the run file in examples, and how many similar summaries its model reads."""
ROUGE = ("rouge1", "rouge2", "rougeL")
MODEL, ORACLE = "model", "best sentence, chosen by the reference"
HELD_OUT = 2000
_CHUNK = 200


def parts(directory: Path, file: str) -> tuple[list[Document], list[Document]]:
    """Return the training and the test documents; the corpus is split unless that is done."""
    if not (directory / "train.jsonl").exists():
        lines = read_lines(directory / file)
        pairs = JsonLines(path=directory / file, source_field="document", target_field="summary").read()
        found = split_documents(zip(lines, pairs, strict=True), valid=HELD_OUT, test=HELD_OUT)
        print(write_split(found, directory, "jsonl"), flush=True)
    train, test = (
        list(JsonLines(path=directory / f"{part}.jsonl").examples(("document", "summary")))
        for part in ("train", "test")
    )
    return train, test


def with_similar(directory: Path, train: Sequence[Document], count: int) -> list[Document]:
    """Write each part with similar training summaries before its documents, for the run file; return the test part."""
    known = SimilarDocuments([(example["document"], example["summary"]) for example in train])
    for part in ("valid", "test", "train"):
        written = directory / "similar" / f"{part}.jsonl"
        if written.exists():
            continue
        examples = JsonLines(path=directory / f"{part}.jsonl").examples(("document", "summary"))
        with replaced_file(written) as fresh, fresh.open("w", encoding="utf-8") as file:
            for example in examples:
                found = {"document": known.before(example["document"], count), "summary": example["summary"]}
                file.write(json.dumps(found, ensure_ascii=False) + "\n")
    return list(JsonLines(path=directory / "similar" / "test.jsonl").examples(("document", "summary")))


def summaries(model: Path, test: Sequence[Document], beam: int) -> list[str]:
    """Return what a model writes."""
    summarizer = regard.load(model, task="summarization")
    made: list[str] = []
    for first in range(0, len(test), _CHUNK):
        made += summarizer.predictions(test[first : first + _CHUNK], beam=beam)
        print(f"{len(made):,} of {len(test):,} summaries", flush=True)
    return made


def ahead_of_all(scores: dict[str, dict[str, Any]]) -> bool:
    """Whether the model's intervals are above those of all baselines, by all metrics; the oracle is none."""
    return all(
        scores[MODEL][metric]["interval"][0] > found[metric]["interval"][1]
        for name, found in scores.items()
        for metric in ROUGE
        if name not in (MODEL, ORACLE)
    )


def page(corpus: str, about: str, texts: dict[str, list[str]], scores: dict[str, Any], test: Sequence[Document]) -> str:
    """Return the table, and ten random outputs beside the references."""
    rows = []
    for name, some in texts.items():
        length = sum(len(text.split()) for text in some) / len(some)
        rows.append([name, *(cell(scores[name][metric]) for metric in ROUGE), f"{length:.1f}"])
    verdict = "above" if ahead_of_all(scores) else "not above"
    lines = [
        f"`{corpus}`: {len(test):,} test documents. No training document, and no training summary, is one of theirs.",
        f"The model: {about}. F-measures with 95 % intervals by bootstrap.",
        "",
        *table(["", "ROUGE-1", "ROUGE-2", "ROUGE-L", "words"], rows),
        "",
        f"The model's intervals are {verdict} those of all baselines, by all three metrics. The last row is no",
        "baseline: it chooses the sentence by the reference.",
        "",
        f"Signature: `{scores[MODEL]['rouge1']['signature']}`",
        "",
        "## Ten at random",
        "",
    ]
    for number in random.Random(1).sample(range(len(test)), min(10, len(test))):
        lines += [f"- reference: {test[number]['summary']}", f"  <br>model: {texts[MODEL][number]}"]
    return "\n".join(lines)


def main() -> None:
    """Train and score what is not there yet, and write the page."""
    parser = parser_of(__doc__)
    parser.add_argument("--corpus", choices=FILES, default="acl-titles")
    parser.add_argument("--model", type=Path, help="a model directory, in place of training one")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--test", type=int, default=HELD_OUT, help="how many of the test documents are scored")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    out, corpus = arguments.out, arguments.corpus
    file, example, similar = FILES[corpus]
    directory = corpus_in(out, corpus, arguments.data)
    train, test = parts(directory, file)
    read = with_similar(directory, train, similar) if similar else test
    test, read = test[: arguments.test], read[: arguments.test]
    model = arguments.model or trained(example, out, example, Budget.of(arguments))
    name = f"{example}-{model.name}-{len(test)}-beam{arguments.beam}-similar{similar}"
    texts = {
        MODEL: once(out / f"{name}.texts.json", lambda: {"texts": summaries(model, read, arguments.beam)})["texts"],
        **once(out / f"{example}-{len(test)}.baselines.json", lambda: baselines(train, test)),
        ORACLE: once(out / f"{example}-{len(test)}.oracle.json", lambda: {"texts": oracle(test)})["texts"],
    }
    references = [document["summary"] for document in test]
    scores = once(
        out / f"{name}.scores.json", lambda: {who: scored(ROUGE, some, references) for who, some in texts.items()}
    )
    about = in_words(described(model)) if (model / METRICS).exists() else "trained before"
    if similar:
        about += f"; before each document it reads the summaries of the {similar} most similar training documents"
    command = f"python -m benchmarks.tasks.summarization --corpus {corpus} --data DIR --out DIR"
    write_page(
        arguments.results,
        f"summarization-{corpus}",
        f"Summarization, {corpus}",
        command,
        page(corpus, f"{about}; beam {arguments.beam}", texts, scores, test).splitlines(),
    )
    print(json.dumps({who: {metric: cell(some[metric]) for metric in ROUGE} for who, some in scores.items()}, indent=1))


if __name__ == "__main__":
    main()
