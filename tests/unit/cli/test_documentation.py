"""Every command in the documentation works as it is written.

Commands are the lines of code blocks and what stands between backticks and begins with `regard`. They are run, unless
they need something that is not here: a block below `<!-- needs data -->`, or FILE or DIR among the arguments. Those
are parsed, so that their verbs and options exist. A verb by itself between backticks is its name.
"""

import importlib
import importlib.util
import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import regard
from regard.cli.app import app
from regard.training import Run

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "src/regard/models").glob("*/README.md")),
]
NEEDS_DATA = "<!-- needs data -->"
PROGRAMS = ("regard", "echo", "torchrun", "make", "pip", "python")
# What makes a command short enough for a test; all else is as it is written.
SHORTER = {
    "train": ["--set", "training.steps=2"],
    "evaluate": ["--beam", "1", "--bootstrap", "2"],
    "doctor": ["--seconds", "1"],
}


@dataclass(frozen=True)
class Command:
    """A command as it is written, and the output that is shown below it."""

    text: str
    needs_data: bool = False
    shown: str | None = None

    @property
    def arguments(self) -> list[str] | None:
        """What follows `regard`; None for other programs."""
        words = _words(self.text)
        if "regard" not in words:
            return None
        after = words[words.index("regard") + 1 :]
        ends = [at for at, word in enumerate(after) if word in ("|", "<", ">")]
        return after[: ends[0]] if ends else after

    @property
    def stdin(self) -> str:
        """What `echo` sends."""
        words = _words(self.text)
        return f"{words[1]}\n" if words[0] == "echo" else ""


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    return list(lexer)


def _blocks(page: str) -> Iterator[tuple[list[str], bool]]:
    """The lines of each code block without a language, and whether it is marked as needing data."""
    before, language, marked = "", "", False
    block: list[str] | None = None
    for line in page.splitlines():
        if line.startswith("```") and block is None:
            block, language, marked = [], line[3:], before == NEEDS_DATA
        elif line == "```" and block is not None:
            if not language:
                yield block, marked
            block = None
        elif block is not None:
            block.append(line)
        before = line


def _without_code(page: str) -> str:
    return re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)


def _commands(page: str) -> Iterator[Command]:
    for lines, marked in _blocks(page):
        for number, line in enumerate(lines):
            if line.startswith("$ "):
                shown = [later for later in lines[number + 1 :] if not later.startswith("$ ")]
                yield Command(line[2:], marked, "\n".join(shown) + "\n")
            elif line.split(" ")[0] in PROGRAMS:
                text = re.sub(r"\s+# .*", "", line)
                yield Command(text, marked or _has_placeholder(text))
    for code in re.findall(r"`([^`\n]+)`", _without_code(page)):
        program, *arguments = code.split(" ")
        if arguments and program in ("regard", "make", "python", "pip"):
            names_a_verb = program == "regard" and not _verb(arguments)[1]
            yield Command(code, names_a_verb or _has_placeholder(code))


def _verb(arguments: list[str]) -> tuple[Any, list[str]]:
    """The verb that arguments begin with, and those that follow it."""
    command = typer.main.get_command(app)
    while arguments and (verbs := getattr(command, "commands", None)) is not None:
        assert arguments[0] in verbs, f"there is no verb {arguments[0]}; there are {', '.join(verbs)}"
        command, arguments = verbs[arguments[0]], arguments[1:]
    return command, arguments


def _has_placeholder(text: str) -> bool:
    return re.search(r"\b(FILE|DIR)\b", text) is not None


COMMANDS = list(dict.fromkeys(command for page in PAGES for command in _commands(page.read_text(encoding="utf-8"))))
OURS = [command for command in COMMANDS if command.arguments is not None]


def _text(command: Command) -> str:
    return command.text


@pytest.mark.parametrize("command", [command for command in OURS if command.needs_data], ids=_text)
def test_what_needs_data_parses(command: Command) -> None:
    assert command.arguments is not None
    verb, arguments = _verb(command.arguments)
    if arguments:
        verb.make_context("regard", arguments)


@pytest.mark.parametrize("command", [command for command in OURS if not command.needs_data], ids=_text)
def test_a_command_runs_as_it_is_written(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = command.arguments
    assert arguments is not None
    result = CliRunner().invoke(app, [*arguments, *SHORTER.get(arguments[0], [])], input=command.stdin)
    assert result.exception is None or result.exit_code == 0, repr(result.exception)
    assert result.exit_code == 0, result.output
    if command.shown is not None:
        assert result.stdout == command.shown


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.arguments is None], ids=_text)
def test_what_other_programs_are_told_is_there(command: Command) -> None:
    words = _words(command.text)
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert words[1] in targets
    elif words[0] == "python":
        module = ROOT / words[2].replace(".", "/") if words[1] == "-m" else None
        script = ROOT / words[1] if module is None else module.with_suffix(".py")
        assert command.needs_data or script.is_file() or (module is not None and (module / "__main__.py").is_file())
    elif words[0] == "pip":
        assert re.search(r"(regard|\.)(\[.*\])?$", words[-1]), "only regard is installed"
        declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = [extra for listed in re.findall(r"\[(.*)\]", words[-1]) for extra in listed.split(",")]
        assert {*extras} <= {*declared["optional-dependencies"]}
        assert all((ROOT / file).is_file() for flag, file in itertools.pairwise(words) if flag == "-c")


def test_options_between_backticks_exist() -> None:
    known: set[str] = {"--max-restarts"}  # torchrun's
    waiting = [typer.main.get_command(app)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        known |= {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for page in PAGES:
        for options in re.findall(r"`(--[^`\n]+)`", page.read_text(encoding="utf-8")):
            assert {word for word in shlex.split(options) if word.startswith("--")} <= known, f"{page.name}: {options}"


def test_relative_links_resolve() -> None:
    for page in (*PAGES, *sorted((ROOT / "benchmarks/results").glob("*.md"))):
        text = _without_code(page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if target.startswith(("http://", "https://")):
                continue
            name, _, anchor = target.partition("#")
            linked = (page.parent / name).resolve() if name else page
            assert linked.exists(), f"{page.name}: {target} is not there"
            if anchor:
                assert anchor in _anchors(linked.read_text(encoding="utf-8")), f"{page.name}: {target} has no heading"


def _anchors(page: str) -> set[str]:
    """The anchors of the headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", _without_code(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "/" + page.name)
def test_names_of_the_library_exist(page: Path) -> None:
    text = _without_code(page.read_text(encoding="utf-8"))
    text = re.sub(r"^\| (`.*?)\| ", "", text, flags=re.MULTILINE) if page.name == "CHANGELOG.md" else text
    package = ""
    for name in re.findall(r"`((?:regard)?(?:\.\w+)+)", text):
        full = name if name.startswith("regard") else package + name
        package = full.rpartition(".")[0]
        if full.startswith("regard."):
            _resolve(full)


def _resolve(name: str) -> object:
    """Import as much of a dotted name as is a module, and take the rest from it."""
    found, path = importlib.import_module("regard"), "regard"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        try:
            found = importlib.import_module(path)
        except ModuleNotFoundError:
            assert hasattr(found, part), f"{name}: {path} is not there"
            found = getattr(found, part)
    return found


def test_the_configuration_reference_is_what_its_script_writes() -> None:
    reference = _script("reference")
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "run `python docs/reference.py`"


def test_every_public_name_is_in_the_api_reference() -> None:
    documented = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    for name in regard.__all__:
        assert re.search(rf"(::|regard\.) ?(regard\.)?{name}\b", documented), f"regard.{name}"


def _script(name: str) -> Any:
    """Import a script of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_adding_a_task_takes_fewer_than_40_lines() -> None:
    page = (ROOT / "docs/tasks.md").read_text(encoding="utf-8")
    section = page[page.index("\n## Adding a task\n") :]
    (example,) = re.findall(r"^```python\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    code = [line for line in example.splitlines() if line.startswith((">>>", "..."))]
    assert any("(regard.tasks.Task)" in line for line in code)
    assert len(code) < 40


def test_the_run_files_that_are_shown_are_read_without_a_complaint() -> None:
    for page in PAGES:
        for text in re.findall(
            r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
        ):
            if "data" in tomllib.loads(text):
                Run.from_toml(text)


def test_the_documentation_has_commands() -> None:
    texts = [command.text for command in COMMANDS]
    for expected in ("regard describe de-en", 'echo "Ich habe Hunger." | regard translate --to en', "make demo"):
        assert expected in texts
