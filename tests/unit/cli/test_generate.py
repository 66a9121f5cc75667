"""`regard generate`: the targets of texts, whatever a model was trained for."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard import load
from regard.cli.app import app
from regard.errors import RegardError
from tests.unit.models import SENTENCES, save_small_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = save_small_model(tmp_path_factory.mktemp("generate") / "model")
    (path / "task.json").write_text('{"tasks": [{"kind": "text2text"}]}')
    return path


def run(*arguments: str | Path, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, ["generate", *map(str, arguments)], input=stdin)
    assert result.exit_code == 0, repr(result.exception)
    return result.stdout


def refusal(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["generate", *map(str, arguments)])
    assert isinstance(result.exception, RegardError)
    return str(result.exception)


def test_each_line_becomes_what_the_model_writes_for_it(model: Path, tmp_path: Path) -> None:
    expected = "".join(f"{made.text}\n" for made in load(model).generate(SENTENCES[:3], beam=2))
    lines = "".join(f"{sentence}\n" for sentence in SENTENCES[:3])
    assert run("--model", model, "--beam", "2", *SENTENCES[:3]) == expected
    assert run("--model", model, "--beam", "2", "--stream", *SENTENCES[:3]) == expected
    assert run("--model", model, "--beam", "2", stdin=lines) == expected
    (tmp_path / "in").write_text(lines)
    run("--model", model, "--beam", "2", "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text() == expected


def test_alternatives_and_the_maximum_length(model: Path) -> None:
    out = run("--model", model, "--n-best", "2", "--max-length", "3", "--format", "jsonl", SENTENCES[0])
    content = json.loads(out)
    assert content["source"] == SENTENCES[0]
    assert len(content["tokens"]) <= 3
    assert len(content["alternatives"]) == 1


def test_what_does_not_go_together_is_refused(model: Path, tmp_path: Path) -> None:
    assert "needs --format tsv or jsonl" in refusal("--model", model, "--n-best", "2", "Tom.")
    assert "--stream shows plain text" in refusal("--model", model, "--stream", "--format", "tsv", "Tom.")
    assert "give --input" in refusal("--model", model, "--output", tmp_path / "out", "Tom.")


def test_a_translation_model_is_refused_with_the_command_that_it_is_for() -> None:
    says = refusal("--model", "de-en", "Tom.")
    assert says.endswith("is for translation (regard translate), not text2text or language-modeling")
