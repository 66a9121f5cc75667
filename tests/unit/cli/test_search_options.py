"""The search options: every verb that decodes has one for each field of `SearchSettings`."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from regard.cli.app import app
from regard.decoding import SearchSettings
from regard.errors import InputError
from tests.unit.models import SENTENCES, save_small_model

VERBS = ("translate", "evaluate", "generate")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_model(tmp_path_factory.mktemp("options") / "model")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "source").write_text("".join(f"{sentence}\n" for sentence in SENTENCES[:3]))
    (tmp_path / "reference").write_text("".join(f"{sentence}\n" for sentence in SENTENCES[5:8]))
    return ["--source", str(tmp_path / "source"), "--reference", str(tmp_path / "reference"), "--bootstrap", "5"]


def run(*arguments: str | Path) -> str:
    """Run a command that succeeds, and return its output."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, repr(result.exception)
    return result.stdout


def refusal(*arguments: str | Path) -> str:
    """Run a command that is refused with one sentence, and return it."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert isinstance(result.exception, InputError)
    assert result.stdout == ""
    return str(result.exception)


def options(verb: str) -> dict[str, Any]:
    """Return the parameters of a verb by each of their options."""
    command: Any = typer.main.get_command(app)
    return {option: parameter for parameter in command.commands[verb].params for option in parameter.opts}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("field", SearchSettings.model_fields)
def test_every_field_is_an_option_with_its_help(verb: str, field: str) -> None:
    description = SearchSettings.model_fields[field].description
    option = options(verb)[f"--{field.replace('_', '-')}"]
    assert description
    assert description in option.help
    assert not option.hidden
    shown = CliRunner().invoke(app, [verb, "--help"], terminal_width=200, env={"COLUMNS": "200"}).stdout
    assert description in shown


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_can_be_turned_off(verb: str) -> None:
    flags = [name for name, field in SearchSettings.model_fields.items() if field.annotation is bool]
    assert flags == ["early_stop", "shortlist", "placeholders", "fold_capitals", "sample"]
    known = options(verb)
    for flag in flags:
        off = f"--no-{flag.replace('_', '-')}"
        assert off in known
        assert off in known[f"--{flag.replace('_', '-')}"].help


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_fits_80_columns(verb: str) -> None:
    shown = CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "80"}).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    for panel in ("Search", "Sampling", "Runtime"):
        assert f"─ {panel} ─" in shown


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--beam", "0", "--beam is 0; input should be greater than or equal to 1"),
        ("--n-best", "10001", "--n-best is 10001; input should be less than or equal to 10000"),
        ("--length-penalty", "nan", "--length-penalty is nan"),
        ("--coverage-penalty", "-0.5", "--coverage-penalty is -0.5"),
        ("--no-repeat", "-1", "--no-repeat is -1"),
        ("--temperature", "inf", "--temperature is inf; input should be a finite number"),
        ("--top-p", "1.5", "--top-p is 1.5; input should be less than or equal to 1"),
    ],
)
def test_a_value_out_of_range_names_the_option(verb: str, option: str, value: str, says: str) -> None:
    assert says in refusal(verb, "--model", "de-en", option, value)


@pytest.mark.parametrize("verb", VERBS)
def test_a_value_of_another_type_names_the_option(verb: str) -> None:
    result = CliRunner().invoke(app, [verb, "--beam", "wide"])
    assert result.exit_code == 2
    assert "Invalid value for '--beam'" in result.output


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("unknown", "nearest"),
    [
        ("--beem", "--beam"),
        ("--lenght-penalty", "--length-penalty"),
        ("--topk", "--top-k"),
        ("--no-sampl", "--no-sample"),
    ],
)
def test_an_unknown_option_suggests_the_nearest(verb: str, unknown: str, nearest: str) -> None:
    result = CliRunner().invoke(app, [verb, unknown, "3"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert f"No such option: {unknown}" in result.output
    assert nearest in result.output.partition(unknown)[2]


@pytest.mark.parametrize("verb", VERBS)
def test_options_that_do_not_go_together_are_refused(verb: str) -> None:
    common = (verb, "--model", "de-en")
    assert refusal(*common, "--seed", "3") == "--seed needs --sample"
    assert refusal(*common, "--seed", "3", "--no-sample") == "--seed needs --sample"
    assert refusal(*common, "--diversity", "1") == "--diversity needs --groups"
    assert "does not go with --sample" in refusal(*common, "--sample", "--no-early-stop")
    assert "--shortlist and its --no- form cannot be combined" in refusal(*common, "--shortlist", "--no-shortlist")


@pytest.mark.parametrize("off", ["--no-shortlist", "--all-words"])
def test_a_flag_that_a_model_sets_can_be_turned_off(tmp_path: Path, off: str) -> None:
    """`--all-words` and `--full-stop` are the names that --no-shortlist and --no-early-stop had."""
    model = save_small_model(tmp_path / "model")
    common = ("translate", "--model", model, "--to", "de", SENTENCES[0])
    plain = run(*common)
    (model / "generation.json").write_text(json.dumps({"shortlist": True, "early_stop": True}))
    assert "no shortlist" in refusal(*common)
    assert run(*common, off, "--full-stop") == run(*common, off, "--no-early-stop") == plain


def test_sampling_that_a_model_sets_can_be_turned_off(tmp_path: Path) -> None:
    model = save_small_model(tmp_path / "model")
    common: list[str | Path] = ["translate", "--model", model, "--to", "de", *SENTENCES[:3]]
    plain = run(*common)
    (model / "generation.json").write_text(json.dumps({"sample": True, "temperature": 5.0}))
    assert run(*common) != plain
    assert run(*common, "--no-sample") == plain


def test_evaluate_searches_as_it_is_told(model: Path, files: list[str]) -> None:
    common: list[str | Path] = ["evaluate", "--model", model, "--to", "de", *files, "--beam", "2"]
    plain = run(*common)
    assert "3 pairs" in plain
    assert run(*common, "--min-length", "40") != plain
    assert "3 pairs" in run(*common, "--precision", "float")
    assert "auto, float or int8" in refusal(*common, "--precision", "int4")


def test_evaluate_takes_threads(model: Path, files: list[str]) -> None:
    before = torch.get_num_threads()
    try:
        run("evaluate", "--model", model, "--to", "de", "--threads", "1", *files)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_the_evaluation_of_a_run_takes_no_other_search_option_than_the_beam(tmp_path: Path) -> None:
    assert "--length-penalty needs --model" in refusal("evaluate", tmp_path, "--beam", "2", "--length-penalty", "1")
    assert "--shortlist needs --model" in refusal("evaluate", tmp_path, "--no-shortlist")
    assert "--precision needs --model" in refusal("evaluate", tmp_path, "--precision", "float")
