"""The page about tasks works as it is written: its run files are trained, its commands and programs run, in order."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli.app import app

PAGE = (Path(__file__).parents[2] / "docs/tasks.md").read_text(encoding="utf-8")
STORY = "Dan went to the office. Anna went to the garden."
QUESTION = {"context": STORY, "question": "Where is Anna?", "answers": ["garden"]}
PAIRS = "".join(f"text number {n}\tText Nummer {n}\n" for n in range(40))


def json_lines(row: dict[str, Any]) -> str:
    return 30 * f"{json.dumps(row)}\n"


SQUAD_ANSWER = {"text": "garden", "answer_start": STORY.index("garden")}
SQUAD_QUESTION = {"id": "1", "question": "Where is Anna?", "answers": [SQUAD_ANSWER]}
SQUAD_PARAGRAPH = {"context": STORY, "qas": [SQUAD_QUESTION]}
FILES = {
    "pairs.tsv": PAIRS,
    "valid.tsv": PAIRS,
    "papers.jsonl": json_lines({"abstract": "We study how models read.", "title": "How models read", "year": 2027}),
    "valid.jsonl": json_lines({"document": "We study how models read.", "summary": "How models read"}),
    "train.jsonl": json_lines({"document": "We study how models write.", "summary": "How models write"}),
    "document.txt": "We study\nhow models read.\n",
    "abstract.txt": "We study\nhow models read.\n",
    "documents.txt": "We study how models read.\n\nWe read.\n",
    "stories/one_train.txt": 20 * f"1 {STORY}\n2 Where is Anna? \tgarden\t1\n",
    "questions.jsonl": json_lines(QUESTION),
    "story.txt": STORY,
    "squad.json": json.dumps({"version": "1.1", "data": [{"title": "a", "paragraphs": [SQUAD_PARAGRAPH]}]}),
    "train.java": "int x = 1;\n" * 30,
    "train.cs": "var x = 1;\n" * 30,
    "reviews.tsv": "what a day\tgood\nwhat a mess\tbad\n" * 20,
    "texts.txt": "what a day\nwhat a mess\n",
    "book.txt": "Once upon a time there was a model. " * 200,
    "more/one.txt": "It read a book. " * 100,
    "valid.txt": "Once upon a time it read. " * 100,
}


def blocks() -> list[tuple[str, str]]:
    """The code blocks in order, each with its language; "" for commands. Examples with prompts are doctests."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    return [(language, code) for language, code in found if not code.startswith(">>>")]


def run(command: str, cache: Path) -> None:
    """Run a command, the standard input of which may be a file or the output of another command."""
    first, _, second = command.partition(" | ")
    before, _, stdin = first.partition(" < ")
    output = run_one(before, cache, Path(stdin).read_text(encoding="utf-8") if stdin else None)
    if second:
        run_one(second, cache, output)


def run_one(command: str, cache: Path, text: str | None) -> str:
    program, *arguments = shlex.split(command)
    assert program == "regard"
    if arguments[0] == "train":
        settings = (
            "training.steps=2",
            "training.batch_tokens=600",
            "tokenizer.vocab_size=350",
            f"data.cache='{cache}'",
        )
        arguments += [word for setting in settings for word in ("--set", setting)]
    if arguments[0] == "evaluate" and "--data" in arguments:
        arguments += ["--bootstrap", "2"]
    result = CliRunner().invoke(app, arguments, input=text)
    assert result.exit_code == 0, f"{command}: {result.output} {result.exception!r}"
    return result.stdout


def test_everything_on_it_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    run_file = ""
    names: dict[str, Any] = {}
    for language, code in blocks():
        if language == "toml":
            run_file = code
        elif language == "python":
            exec(compile(code, "tasks.md", "exec"), names)
        else:
            for command in code.splitlines():
                if command.startswith("regard train "):
                    Path(command.split(" ")[2]).write_text(run_file, encoding="utf-8")
                run(command, tmp_path / "cache")
    assert json.loads(Path("predictions.json").read_text(encoding="utf-8")).keys() == {"1"}
    summaries = Path("summaries.txt").read_text(encoding="utf-8").split("\n")
    assert [bool(summary) for summary in summaries[1:]] == [False, *map(bool, summaries[2:-1]), False]
