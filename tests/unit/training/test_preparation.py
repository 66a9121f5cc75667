"""What a run trains on: its tokenizers, and the pairs that its model can read."""

import json
import shutil
from pathlib import Path

import pytest

from regard import train
from regard.data import Tokenizer
from regard.errors import ConfigError
from regard.training import Run
from regard.training.evaluation import evaluate_run
from regard.training.preparation import prepare
from tests.unit.training.runs import Notes, small_run


def test_another_target_tokenizer_does_not_go_unnoticed(tmp_path: Path) -> None:
    for name, text in (("a", "one two"), ("b", "three four")):
        Tokenizer.train([text], vocab_size=400).save(tmp_path / f"{name}.json")
    both = ("tokenizer.source=a.json", "tokenizer.target=a.json", "training.steps=2")
    train(small_run(tmp_path, *both), tmp_path / "out")
    with pytest.raises(ConfigError, match=r"made with another tokenizer than .*b\.json"):
        train(small_run(tmp_path, *both, "tokenizer.target=b.json"), tmp_path / "out")


@pytest.mark.parametrize("task", ["language-modeling", "extractive-question-answering"])
def test_the_parts_that_a_task_cuts_texts_into_are_not_left_out(tmp_path: Path, task: str) -> None:
    text = "one two three four five " * 300
    (tmp_path / "a.txt").write_text(text)
    answer = {"context": text, "question": "what is first?", "answers": [{"text": "one", "answer_start": 0}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(answer) + "\n")
    corpus = '{kind = "text", path = "a.txt"}' if task == "language-modeling" else '{kind = "jsonl", path = "a.jsonl"}'
    run = Run.from_toml(
        f'task = "{task}"\ndata = {{train = [{corpus}], cache = "cache"}}\ntokenizer.vocab_size = 300\n'
        'model = {preset = "tiny"}\ntraining.steps = 2\n',
        base=tmp_path,
    )
    notes = Notes()
    prepared = prepare(run, tmp_path / "out", notes.sentences.append)
    assert prepared.train.left_out == 0
    assert len(prepared.train) > 1


def test_lines_longer_than_learned_positions_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = ["one two three"] * 30 + ["one " * 50]
    for name in ("a", "b"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    corpus = '[{kind = "parallel", source = "a", target = "b"}]'
    notes = Notes()
    changes = ("model.positions=learned", "model.max_positions=40", "validation.metric=exact", "training.steps=2")
    train(
        small_run(tmp_path, f"data.train={corpus}", f"data.valid={corpus}", *changes), tmp_path / "out", callback=notes
    )
    said = [line for line in notes.sentences if "longer than model.max_positions 40 left out" in line]
    assert [line.partition(":")[0] for line in said] == ["training", "validation"]
    assert all("30 pairs; 1 longer" in line for line in said)
    assert evaluate_run(tmp_path / "out", tmp_path / "out").loss > 0.0


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("model.random_positions=14", "model.random_positions 14"),
        ('model.attention.encoder.kind={kind="linformer",max_length=14}', "model.attention.encoder.kind 14"),
        ('model.attention.pattern={kind="blocks",rows=["10","11"],block=7}', "model.attention.pattern 14"),
    ],
)
def test_lines_longer_than_the_model_reads_are_left_out_of_training(tmp_path: Path, change: str, key: str) -> None:
    notes = Notes()
    train(small_run(tmp_path, change, "training.steps=1", "validation.metric=loss"), tmp_path / "out", callback=notes)
    assert any(f"longer than {key} left out" in line for line in notes.sentences)


def test_a_run_is_evaluated_without_the_model_that_it_started_from(tmp_path: Path) -> None:
    train(small_run(tmp_path, "training.steps=1"), tmp_path / "base")
    more = ('training.start_from="base"', "training.steps=1", "model={}")
    train(small_run(tmp_path, *more), tmp_path / "out")
    shutil.rmtree(tmp_path / "base")
    assert evaluate_run(tmp_path / "out", tmp_path / "out").loss > 0.0
