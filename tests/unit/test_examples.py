"""The examples: run files that can be read, and data that is made as they need it."""

import json
from pathlib import Path

import pytest

from examples import docstrings
from regard.training import Run

EXAMPLES = Path(__file__).parents[2] / "examples"
TASKS = {
    "babi": "question-answering",
    "characters": "language-modeling",
    "dates": "translation",
    "java-csharp": "translation",
    "synopsis": "summarization",
    "titles": "summarization",
    "topics": "classification",
}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_run_files_are_valid_and_their_paths_are_below_the_examples(path: Path) -> None:
    run = Run.load(path)
    assert [task.kind for task in run.task] == [TASKS[path.stem]]
    for corpus in (*run.data.train, *run.data.valid):
        for value in dict(corpus).values():
            assert not isinstance(value, Path) or value.is_relative_to(EXAMPLES.absolute() / "data")


def module(directory: Path, name: str, text: str) -> None:
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text, encoding="utf-8")


def test_docstrings_are_read_in_order_without_tests_and_without_importing(tmp_path: Path) -> None:
    module(tmp_path, "b.py", 'raise SystemExit\ndef f():\n    """Does it.\n\n    At length."""\n')
    module(tmp_path, "a.py", '"""The module."""\nclass A:\n    """The class."""\n    x = "no docstring"\n')
    module(tmp_path, "tests/c.py", '"""Tests."""\n')
    module(tmp_path, "d.py", "not python\n")
    assert list(docstrings.docstrings(tmp_path)) == [
        ("a.py", "The module."),
        ("a.py", "The class."),
        ("b.py", "Does it.\n\nAt length."),
    ]


def test_the_first_paragraph_is_on_one_line() -> None:
    assert docstrings.first_paragraph("Returns\n  the graph.\n\nMore.") == "Returns the graph."


def test_topics_and_characters_are_written_by_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = {}
    for package in (*docstrings.PACKAGES, docstrings.LIBRARY):
        homes[package] = tmp_path / package
        for number in range(30):
            text = f"Return the {package[::-1]} that has the number {number} of all."
            module(homes[package], f"m{number}.py", f'"""{text}"""\ndef f():\n    """Too short."""\n')
        module(homes[package], "named.py", f'"""This is what the package {package} is all about."""\n')
    monkeypatch.setattr(docstrings, "home_of", homes.__getitem__)
    docstrings.main(tmp_path / "data")
    parts = {
        part: [json.loads(line) for line in (tmp_path / f"data/topics/{part}.jsonl").read_text().splitlines()]
        for part in ("train", "valid", "test")
    }
    assert all(parts.values())
    assert sum(map(len, parts.values())) == 120
    for example in (example for examples in parts.values() for example in examples):
        assert example["label"][::-1] in example["text"]
        assert example["label"] not in example["text"]
    texts = (tmp_path / "data/characters/train.jsonl").read_text().splitlines()
    assert "\n\nToo short." in json.loads(texts[0])["text"]
