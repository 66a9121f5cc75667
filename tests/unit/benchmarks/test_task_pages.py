"""What the benchmarks of tasks make of answers: scores, tables, pages."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import table, write_page
from benchmarks.tasks import babi, docstrings, java_csharp, summarization
from benchmarks.tasks.runs import Budget, cell, scored, trained
from regard.data import JsonLines
from regard.data.examples import Answer

ROWS = [{"id": number, "document": f"Text number {number}.", "summary": f"Number {number}"} for number in range(30)]


def interval(low: float, high: float) -> dict[str, Any]:
    return {metric: {"value": (low + high) / 2, "interval": [low, high]} for metric in summarization.ROUGE}


def test_documents_are_split_once_and_no_test_document_is_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summarization, "HELD_OUT", 5)
    rows = [*ROWS, {**ROWS[0], "summary": "another summary of the same document"}]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    train, test = summarization.parts(tmp_path, "all.jsonl")
    assert len(test) == 5
    assert not {example["document"] for example in train} & {example["document"] for example in test}
    (tmp_path / "all.jsonl").unlink()
    assert summarization.parts(tmp_path, "all.jsonl") == (train, test)


def test_a_model_is_ahead_where_its_intervals_are_above_those_of_all_baselines() -> None:
    scores = {"model": interval(30.0, 32.0), "first": interval(20.0, 29.0), summarization.ORACLE: interval(40.0, 41.0)}
    assert summarization.ahead_of_all(scores)
    assert not summarization.ahead_of_all({**scores, "nearest": interval(25.0, 30.5)})


def test_the_page_of_summaries_has_all_rows_and_ten_outputs() -> None:
    texts = {"model": [f"Number {number}" for number in range(30)], "first": ["Text"] * 30}
    references = [row["summary"] for row in ROWS]
    scores = {name: scored(summarization.ROUGE, some, references) for name, some in texts.items()}
    page = summarization.page("acl-titles", "tiny", texts, scores, ROWS)  # type: ignore[arg-type]
    assert "| model | 100.0 (100.0 to 100.0) |" in page
    assert "| first | 0.0 (0.0 to 0.0) |" in page
    assert "are above those of all baselines" in page
    assert page.count("- reference: Number") == page.count("<br>model: Number") == 10


def test_accuracies_are_of_each_task_and_to_the_letter() -> None:
    questions = [
        {"task": task, "task_name": name, "answers": [Answer(answer)]}
        for task, name, answer in ((1, "facts", "garden"), (1, "facts", "hall"), (8, "lists", "milk,apple"))
    ]
    found = babi.accuracies(questions, ["garden", "Hall", "milk,apple"])
    assert found == {"1 facts": 50.0, "8 lists": 100.0}
    assert babi.mean(found) == 75.0
    about = {"parameters": 900_000, "epochs": 20.0, "minutes": 30.0, "accuracies": found}
    page = "\n".join(babi.page({"plain-1": about}))
    assert "| tasks at 95 % | 1 |" in page
    assert "| **mean accuracy** | **75.0** |" in page


def test_a_copy_of_the_source_scores_as_codexglue_counts(tmp_path: Path) -> None:
    for side, text in (("java", "int a ( ) { return 1 ; }"), ("cs", "int a ( ) { return 1 ; }")):
        (tmp_path / f"test.{side}").write_text(f"{text}\n", encoding="utf-8")
    found = {direction: java_csharp.copied(corpus) for direction, corpus in java_csharp.corpora(tmp_path).items()}
    assert found["Java to C#"] == {"code_bleu4": pytest.approx(100.0), "code_exact": 100.0}
    results = {direction: {"model": some, "copied": some} for direction, some in found.items()}
    page = "\n".join(java_csharp.page(results, "tiny", 5))
    assert "| Java to C#, published Transformer | 55.84 | 33.0 |" in page


def test_the_model_reads_summaries_of_similar_training_documents_alone(tmp_path: Path) -> None:
    for part, text in (("train", "cat"), ("valid", "dog"), ("test", "mouse")):
        lines = [{"document": f"the {text} sat {number}", "summary": f"{text} {number}"} for number in range(3)]
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    train, _ = summarization.parts(tmp_path, "none")
    read = summarization.with_similar(tmp_path, train, 2)
    assert read[1] == {"document": "cat 1 | cat 0 | the mouse sat 1", "summary": "mouse 1"}
    first = JsonLines(path=tmp_path / "similar" / "train.jsonl").examples(("document",))
    assert next(iter(first))["document"] == "cat 1 | cat 2 | the cat sat 0"
    assert summarization.with_similar(tmp_path, train, 2) == read


def test_labels_without_a_model_are_the_most_frequent_and_the_nearest() -> None:
    train = [{"text": "a graph", "label": "graphs"}, {"text": "a tensor", "label": "tensors"}] * 2
    train.append({"text": "nodes of a graph", "label": "graphs"})
    found = docstrings.label_baselines(train, [{"text": "the tensor", "label": "tensors"}])
    assert list(found.values()) == [["graphs"], ["tensors"]]


def test_a_text_that_was_read_before_is_compressed_to_next_to_nothing() -> None:
    text = "".join(random.Random(1).choices("abcdefgh", k=2000))
    assert docstrings.compressed_bits(text, text) < 0.5 < docstrings.compressed_bits("", text)


def test_scores_are_written_with_their_intervals() -> None:
    found = scored(("exact",), ["a", "b"] * 50, ["a", "x"] * 50)["exact"]
    assert found["value"] == 50.0
    assert cell({"value": 31.25, "interval": (30.0, 32.0)}) == "31.2 (30.0 to 32.0)"
    assert table(["", "x"], [["a", "1"]]) == ["|  | x |", "| --- | ---: |", "| a | 1 |"]


def test_a_page_names_its_command_and_the_machine(tmp_path: Path) -> None:
    path = write_page(tmp_path / "page.md", "x", "Title", "python -m benchmarks.x", ["text"])
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# Title, 20")
    assert lines[2].startswith("`python -m benchmarks.x` made this file. ")


def test_a_run_of_examples_is_trained_for_so_many_minutes_and_not_again(tmp_path: Path) -> None:
    (tmp_path / "data" / "topics").mkdir(parents=True)
    lines = [{"text": f"{name} number {number}", "label": name} for name in ("ab", "cd") for number in range(40)]
    for part in ("train", "valid"):
        path = tmp_path / "data" / "topics" / f"{part}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    tiny = ["model.d_model=16", "model.num_heads=2", "model.encoder_layers=1", "tokenizer.vocab_size=400"]
    changes = [*tiny, "training.epochs=100000", f'data.cache="{tmp_path / "cache"}"']
    out = trained("topics", tmp_path, "topics", Budget(minutes=0.001), changes)
    steps = json.loads((tmp_path / "models" / "topics.steps.json").read_text())["steps"]
    assert 1 <= steps < 1000
    before = (out / "model.safetensors").stat().st_mtime_ns
    assert trained("topics", tmp_path, "topics", Budget(minutes=9.0), changes) == out
    assert (out / "model.safetensors").stat().st_mtime_ns == before
