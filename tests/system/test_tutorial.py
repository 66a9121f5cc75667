"""The tutorial works as it is written: its files are saved and its commands run, in order, in an empty directory."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from regard.cli.app import app

TUTORIAL = (Path(__file__).parents[2] / "docs/tutorial.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The code blocks of a language; "" for commands."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", TUTORIAL, flags=re.MULTILINE | re.DOTALL)
    return [code for written_in, code in found if written_in == language]


def commands() -> list[tuple[str, str]]:
    """Every command, with the output that is shown below it."""
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).+\n)*)", "\n".join(blocks("")), flags=re.MULTILINE)
    assert len(found) == 9
    return found


def run(command: str, options: list[str]) -> Result:
    program, *arguments = shlex.split(command)
    assert program == "regard"
    result = CliRunner().invoke(app, [*arguments, *(options if arguments[0] == "train" else [])])
    assert result.exit_code == 0, f"{command}: {result.output} {result.exception!r}"
    return result


def follow(directory: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> dict[str, Result]:
    """Follow the tutorial in a directory, with some options for `regard train`; return the results of its commands."""
    monkeypatch.chdir(directory)
    program, use = blocks("python")
    (configuration,) = blocks("toml")
    Path("write_numbers.py").write_text(program, encoding="utf-8")
    Path("numbers.toml").write_text(configuration, encoding="utf-8")
    results = {}
    for command, _ in commands():
        match shlex.split(command):
            case ["python", script]:
                exec(compile(Path(script).read_text(encoding="utf-8"), script, "exec"), {})
            case ["cp", source, destination]:
                shutil.copy(source, destination)
            case _:
                results[command] = run(command, options)
    exec(compile(use, "tutorial.md", "exec"), {})
    return results


def test_its_commands_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = ["--set", "training.steps=4", "--set", "validation.every=4", "--set", f"data.cache='{tmp_path}/cache'"]
    results = follow(tmp_path, monkeypatch, fewer)
    assert "parameters" in results["regard train numbers.toml --dry-run"].output
    assert (tmp_path / "numbers" / "model.safetensors").is_file()


@pytest.mark.slow
def test_its_model_translates_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        results = follow(tmp_path, monkeypatch, ["--set", f"data.cache='{tmp_path}/cache'"])
    finally:
        torch.set_num_threads(before)
    for command, shown in commands():
        if shown:
            assert results[command].stdout == shown
    scores = re.findall(r"([\d.]+) (BLEU|chrF)", results["regard evaluate --model numbers"].output)
    assert {name for _, name in scores} == {"BLEU", "chrF"}
    assert all(float(score) > 99 for score, _ in scores)
