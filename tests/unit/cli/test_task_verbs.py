"""`regard summarize`, `answer`, `classify` and `evaluate`: what cannot be done is refused in a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regard.cli.app import app
from regard.errors import RegardError
from regard.tasks.question_answering import QuestionAnswerer
from tests.unit.models import save_small_model, small_model

STORY = "Anna went to the garden."


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model of each task, none of which has learned anything."""
    path = tmp_path_factory.mktemp("models")
    for kind in ("summarization", "question-answering"):
        save_small_model(path / kind)
    language_model, tokenizer = small_model(encoder_layers=0)
    language_model.save(path / "language-modeling")
    tokenizer.save(path / "language-modeling" / "tokenizer.json")
    for directory in path.iterdir():
        (directory / "task.json").write_text(json.dumps({"tasks": [{"kind": directory.name}]}))
    return path


def refusal(*arguments: str | Path, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)], input=stdin)
    assert isinstance(result.exception, RegardError), repr(result.exception)
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_an_empty_document_is_refused(models: Path) -> None:
    model = models / "summarization"
    assert refusal("summarize", "--model", model, "") == "document 1 is empty; there is nothing to summarize"
    says = refusal("summarize", "--model", model, stdin=" \n")
    assert says == "standard input is empty; a document was expected"


@pytest.mark.parametrize("verb", ["summarize", "answer", "classify", "generate"])
def test_a_directory_that_holds_no_model_is_named(verb: str, tmp_path: Path) -> None:
    context = ("--context", __file__) if verb == "answer" else ()
    says = refusal(verb, "--model", tmp_path, *context, "text")
    assert says == f"{tmp_path} has no config.json: it is not the directory of a model"


def test_a_question_without_a_context_is_refused(models: Path, tmp_path: Path) -> None:
    ask = ("answer", "--model", models / "question-answering")
    assert refusal(*ask, "Where?") == "a question needs a text to find the answer in: --context FILE"
    says = refusal(*ask, stdin='{"question": "Where?"}\n')
    assert says == "standard input, line 1: it has no field 'context', or no text in it"
    says = refusal(*ask, stdin="[" * 100_000 + "\n")
    assert says == "standard input, line 1: it is not JSON; without --context a line has question and context"
    (tmp_path / "empty.txt").write_text("\n")
    says = refusal(*ask, "--context", tmp_path / "empty.txt", "Where?")
    assert says.endswith("empty.txt is empty; there is no text to find answers in")


def test_search_options_that_the_model_cannot_do_are_refused_before_the_first_question(
    models: Path, tmp_path: Path
) -> None:
    (tmp_path / "story.txt").write_text(STORY)
    ask = ("answer", "--model", models / "question-answering", "--shortlist")
    for context in ((), ("--context", tmp_path / "story.txt")):
        says = refusal(*ask, *context, stdin="Where?\n")
        assert says == "the model has no shortlist; `regard shortlist` makes one"


def test_an_answer_that_is_not_in_its_context_is_told_by_file_and_question(models: Path, tmp_path: Path) -> None:
    question = {"id": "q7", "question": "Where?", "answers": [{"text": "hall", "answer_start": 3}]}
    content = {"data": [{"title": "", "paragraphs": [{"context": STORY, "qas": [question]}]}]}
    (tmp_path / "squad.json").write_text(json.dumps(content))
    for verb, option in (("answer", "--squad"), ("evaluate", "--data")):
        says = refusal(verb, "--model", models / "question-answering", option, tmp_path / "squad.json")
        assert "squad.json, question q7: the answer 'hall' is not in its context" in says


def test_a_field_that_is_missing_is_told_by_file_and_line(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"document": "a", "summary": "b"}\n{"document": "a", "title": "b"}\n')
    says = refusal("evaluate", "--model", models / "summarization", "--data", path)
    assert says == f"{path}, line 2 has no field 'summary'"


@pytest.mark.parametrize(
    ("verb", "kind", "of"),
    [
        ("translate", "summarization", "regard summarize"),
        ("summarize", "question-answering", "regard answer"),
        ("answer", "language-modeling", "regard generate"),
        ("classify", "summarization", "regard summarize"),
        ("generate", "question-answering", "regard answer"),
    ],
)
def test_a_model_of_another_task_is_refused_with_the_command_that_it_is_for(
    models: Path, tmp_path: Path, verb: str, kind: str, of: str
) -> None:
    (tmp_path / "story.txt").write_text(STORY)
    context = ("--context", tmp_path / "story.txt") if verb == "answer" else ()
    says = refusal(verb, "--model", models / kind, *context, "a text")
    assert f"is for {kind} ({of}), not " in says


def test_a_language_model_is_scored_by_its_perplexity(models: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Tom sees\nMary.\n")
    (tmp_path / "a.jsonl").write_text('{"text": "Tom sees\\nMary."}\n')
    verb = ("evaluate", "--model", models / "language-modeling", "--data")
    lines = [CliRunner().invoke(app, [*map(str, verb), str(tmp_path / f"a.{end}")]).stdout for end in ("txt", "jsonl")]
    assert lines[0] == lines[1]
    assert lines[0].startswith("language-modeling, 1 text\nperplexity ")
    assert "a perplexity needs no search" in refusal(*verb, tmp_path / "a.txt", "--beam", "2")
    assert "a perplexity has none" in refusal(*verb, tmp_path / "a.txt", "--bootstrap", "5")


@pytest.mark.parametrize("option", ["--placeholders", "--fold-capitals"])
def test_options_of_translation_are_refused_by_other_verbs(models: Path, tmp_path: Path, option: str) -> None:
    (tmp_path / "data.jsonl").write_text('{"document": "a", "summary": "b"}\n')
    (tmp_path / "story.txt").write_text(STORY)
    summarizer = ("--model", models / "summarization")
    for arguments in (
        ("summarize", *summarizer, "a text"),
        ("evaluate", *summarizer, "--data", tmp_path / "data.jsonl"),
        ("answer", "--model", models / "question-answering", "--context", tmp_path / "story.txt", "Where?"),
        ("generate", "--model", models / "language-modeling", "a text"),
    ):
        name = option.removeprefix("--").replace("-", "_")
        assert refusal(*arguments, option).startswith(f"{name} is for translation alone; a model for ")
        off = option.replace("--", "--no-")
        assert CliRunner().invoke(app, [*map(str, arguments), "--max-length", "3", off]).exception is None


def test_blank_lines_stay_blank(models: Path, tmp_path: Path) -> None:
    (tmp_path / "story.txt").write_text(STORY)
    (tmp_path / "lines.txt").write_text("Where?\n\nWho?\n")
    answering = ("answer", "--model", models / "question-answering", "--context", tmp_path / "story.txt")
    writing = ("generate", "--model", models / "language-modeling", "--max-length", "3")
    for verb in (answering, writing):
        result = CliRunner().invoke(app, [*map(str, verb), "--input", str(tmp_path / "lines.txt")])
        assert result.exception is None
        assert [bool(line) for line in result.stdout.split("\n")][1] is False
        assert result.stdout.count("\n") == 3


def test_data_that_is_missing_is_named(models: Path, tmp_path: Path) -> None:
    model = models / "summarization"
    assert refusal("evaluate", "--model", model, "--data", tmp_path / "a") == f"{tmp_path / 'a'} is missing"
    says = refusal("evaluate", "--model", model)
    assert says.endswith("test.jsonl is missing; --data FILE names the examples for a model without a test set")


def test_answers_to_a_squad_file_are_resumed_after_a_stop(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = [{"id": f"é{number}", "question": f"Where {number}?", "answers": []} for number in range(7)]
    content = {"data": [{"title": "", "paragraphs": [{"context": STORY, "qas": questions}]}]}
    squad, out = tmp_path / "squad.json", tmp_path / "out.json"
    squad.write_text(json.dumps(content))
    monkeypatch.setattr("regard.cli.answer._QUESTIONS", 3)
    arguments = [*map(str, ("answer", "--model", models / "question-answering", "--squad", squad, "--beam", 1))]
    printed = CliRunner().invoke(app, arguments)
    assert list(json.loads(printed.stdout)) == [question["id"] for question in questions]

    asked: list[int] = []
    answer = QuestionAnswerer.answer

    def answer_some(self: QuestionAnswerer, some: Any, *others: Any, **options: Any) -> Any:
        asked.append(len(some))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return answer(self, some, *others, **options)

    monkeypatch.setattr(QuestionAnswerer, "answer", answer_some)
    CliRunner().invoke(app, [*arguments, "--output", str(out)])
    assert not out.exists()
    CliRunner().invoke(app, [*arguments, "--output", str(out)])
    assert asked == [3, 3, 1, 1]
    assert out.read_text() == printed.stdout
