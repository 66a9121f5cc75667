"""Every task is learned, scored and used: from a run file to answers."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import regard
from regard.cli.app import app
from regard.errors import ModelError
from regard.training import Run
from regard.training.evaluation import evaluate_run

NAMES = ["Anna", "Ben", "Clara", "Dan"]
PLACES = ["garden", "kitchen", "office", "hall"]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def story(draw: random.Random) -> dict[str, Any]:
    """Two people go to places; the question is about one of them."""
    first, second = draw.sample(NAMES, 2)
    places = {first: draw.choice(PLACES), second: draw.choice(PLACES)}
    context = " ".join(f"{name} went to the {place}." for name, place in places.items())
    asked = draw.choice([first, second])
    return {"context": context, "question": f"Where is {asked}?", "answers": [places[asked]]}


def encoder_run(task: str, train: Path, *, valid: Path, metric: str, steps: int) -> Run:
    """Return a run of a small encoder."""
    return Run.from_toml(
        f'task = "{task}"\n'
        f'data.train = [{{kind = "jsonl", path = "{train}"}}]\ndata.valid = [{{kind = "jsonl", path = "{valid}"}}]\n'
        f'data.cache = "{train.parent / "cache"}"\n'
        "tokenizer = {vocab_size = 420}\n"
        'model = {preset = "tiny", d_model = 64, d_ff = 128, num_heads = 4, encoder_layers = 2, '
        'dropout = 0.0, norm_placement = "pre", positions = "rope"}\n'
        f"training = {{steps = {steps}, batch_tokens = 2048, label_smoothing = 0.0}}\n"
        f'validation = {{metric = "{metric}", every = {steps}}}\n'
        'schedule = {kind = "linear", warmup = 20, peak = 3e-3}\n'
    )


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("stories")
    draw = random.Random(1)
    return {
        part: write_lines(path / f"{part}.jsonl", [story(draw) for _ in range(count)])
        for part, count in (("train", 2000), ("valid", 60))
    }


def test_answers_are_extracted_from_stories(stories: dict[str, Path], tmp_path: Path) -> None:
    run = encoder_run(
        "extractive-question-answering", stories["train"], valid=stories["valid"], metric="squad_exact", steps=150
    )
    out = regard.train(run, tmp_path / "model")
    found = evaluate_run(out, out)
    assert found.score is not None
    assert found.score.value > 90.0
    answerer = regard.load(out)
    context = "Dan went to the office. Anna went to the garden."
    span = answerer.answer("Where is Anna?", context)
    assert span.text == "garden"
    assert context[span.start : span.end] == "garden"
    assert 0.0 < span.score <= 1.0
    # Far more than a window: nothing is cut, and the story is found wherever it is.
    filler = "Nobody was there. " * 200
    far = answerer.answer("Where is Anna?", f"{filler}{context}{filler}")
    assert far.text in ("garden", "office")
    assert len(filler) <= far.start < len(filler) + len(context)
    found_by_command = CliRunner().invoke(app, ["answer", "--model", str(out), "Where is Anna?"])
    assert "needs a text to find the answer in" in str(found_by_command.exception)
    with pytest.raises(ModelError, match=r"is for extractive-question-answering \(regard answer\), not translation"):
        regard.load(out, task="translation")


def test_documents_are_summarized_and_questions_answered_by_one_model(stories: dict[str, Path], tmp_path: Path) -> None:
    draw = random.Random(2)
    documents = [
        {"document": f"{place} {draw.choice(NAMES)} and {draw.choice(NAMES)} met.", "summary": f"about {place}"}
        for place in draw.choices(PLACES, k=600)
    ]
    path = write_lines(tmp_path / "documents.jsonl", documents)
    run = Run.from_toml(
        'task = ["summarization", "question-answering"]\n'
        f'data.train = [{{task = "summarization", kind = "jsonl", path = "{path}"}}, '
        f'{{task = "question-answering", kind = "jsonl", path = "{stories["train"]}"}}]\n'
        f'data.cache = "{tmp_path / "cache"}"\n'
        "tokenizer = {vocab_size = 420}\n"
        'model = {preset = "tiny", d_model = 64, d_ff = 128, encoder_layers = 2, decoder_layers = 1, dropout = 0.0, '
        'norm_placement = "pre", positions = "rope"}\n'
        "training = {steps = 260, batch_tokens = 2048, label_smoothing = 0.0}\n"
        'schedule = {kind = "linear", warmup = 20, peak = 3e-3}\n'
    )
    out = regard.train(run, tmp_path / "model")
    summarizer = regard.load(out, task="summarization")
    assert summarizer.summarize("kitchen Ben and Dan met.").text == "about kitchen"
    answerer = regard.load(out, task="question-answering")
    asked = [story(random.Random(seed)) for seed in range(100, 150)]
    answers = answerer.answer([one["question"] for one in asked], [one["context"] for one in asked])
    assert (
        sum(a.text == one["answers"][0] for a, one in zip(answers, asked, strict=True)) >= 30
    )  # guessing gives 12, or 25
    result = CliRunner().invoke(app, ["summarize", "--model", str(out), "hall Ben and Dan met."])
    assert result.stdout == "about hall\n"


def test_texts_are_classified(tmp_path: Path) -> None:
    draw = random.Random(3)
    words = {"food": ["bread", "soup", "apple", "rice"], "sport": ["ball", "goal", "race", "team"]}
    rows = []
    for _ in range(600):
        label = draw.choice(list(words))
        rows.append({"text": " ".join([*draw.choices(NAMES, k=3), draw.choice(words[label])]), "label": label})
    train, valid = write_lines(tmp_path / "train.jsonl", rows[:500]), write_lines(tmp_path / "valid.jsonl", rows[500:])
    run = encoder_run("classification", train, valid=valid, metric="accuracy", steps=40)
    out = regard.train(run, tmp_path / "model")
    classifier = regard.load(out)
    assert classifier.labels == ("food", "sport")
    found = classifier.classify(["Anna Dan soup", "Ben Ben goal"])
    assert [one.label for one in found] == ["food", "sport"]
    assert sum(found[0].probabilities.values()) == pytest.approx(1.0)
    result = CliRunner().invoke(app, ["evaluate", "--model", str(out), "--data", str(valid)])
    assert "classification, 100 examples" in result.stdout
    assert "accuracy" in result.stdout
    printed = CliRunner().invoke(app, ["classify", "--model", str(out), "--format", "tsv", "Dan team"])
    assert printed.stdout.startswith("Dan team\tsport\t")


def test_a_language_model_goes_on_with_a_text(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two three four five six seven\n" * 300, encoding="utf-8")
    run = Run.from_toml(
        f'task = "language-modeling"\ndata.train = [{{kind = "text", path = "{text}"}}]\n'
        f'data.valid = [{{kind = "text", path = "{text}"}}]\ndata.cache = "{tmp_path / "cache"}"\n'
        "tokenizer = {vocab_size = 400}\n"
        'model = {preset = "tiny", d_model = 32, d_ff = 64, decoder_layers = 1, dropout = 0.0}\n'
        "training = {steps = 60, batch_tokens = 1024, label_smoothing = 0.0}\n"
        'schedule = {kind = "linear", warmup = 10, peak = 1e-2}\n'
    )
    out = regard.train(run, tmp_path / "model")
    assert evaluate_run(out, out).perplexity < 1.5
    generator = regard.load(out)
    assert generator.generate("one two three", beam=1).text == "one two three four five six seven"
    sampled = generator.generate("one two", sample=True, seed=1, max_length=20, n_best=3)
    assert all(one.text.startswith("one two") for one in (sampled, *sampled.alternatives))
    printed = CliRunner().invoke(app, ["generate", "--model", str(out), "--beam", "1", "two three"])
    assert printed.stdout.startswith("two three four five")
