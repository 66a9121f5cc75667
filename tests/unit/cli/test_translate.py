"""`regard translate`, `score` and `evaluate`: lines in, lines out, files that are whole or not there."""

import io
import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import torch

from regard.cli import main, text_jobs
from regard.data import Tokenizer
from regard.decoding import Hypothesis
from regard.errors import InputError
from regard.tasks.translation import Translator
from tests.unit.models import SENTENCES, save_small_model

EMPTY = str(Path(text_jobs.__file__).parents[1] / "py.typed")
Capture = pytest.CaptureFixture[bytes]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_model(tmp_path_factory.mktemp("translate") / "model")


class Shell:
    """The command line, called as a shell would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capture: Capture) -> None:
        self._monkeypatch, self._capture = monkeypatch, capture

    def __call__(self, *arguments: str | Path, stdin: str = "", code: int = 0) -> tuple[str, str]:
        self._monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as left:
            main()
        out, err = self._capture.readouterr()
        assert int(left.value.code or 0) == code, err.decode()
        return out.decode(), err.decode()


@pytest.fixture
def regard(monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture) -> Shell:
    return Shell(monkeypatch, capsysbinary)


def test_a_line_for_a_line_in_order_and_blank_for_blank(regard: Shell, model: Path) -> None:
    lines = [SENTENCES[0], "", "  ", "42", SENTENCES[1], "Tom.\u2028Mary.\x0c\x85", SENTENCES[0]]
    out, _ = regard("translate", "--model", model, "--to", "de", stdin="\n".join(lines) + "\n")
    made = out.split("\n")
    assert len(made) == len(lines) + 1
    assert made[1:4] == ["", "  ", "42"]
    assert made[0] == made[6]
    assert made[0] != made[4]
    assert regard("translate", "--model", model, "--to", "de")[0] == ""


def test_formats(regard: Shell, model: Path) -> None:
    common = ("translate", "--model", model, "--to", "de", "--beam", "3", "--n-best", "2")
    table, _ = regard(*common, "--format", "tsv", "Tom\tsees it.", SENTENCES[3])
    rows = [line.split("\t") for line in table.splitlines()]
    assert [row[0] for row in rows] == ["Tom sees it."] * 2 + [SENTENCES[3]] * 2
    assert float(rows[0][2]) >= float(rows[1][2])
    text, _ = regard(*common, "--format", "jsonl", "--align", SENTENCES[3])
    content = json.loads(text)
    assert content["text"] == rows[2][1]
    assert content["alternatives"][0]["text"] == rows[3][1]
    assert len(content["alignment"]) == len(content["tokens"])


def test_a_stream_is_the_translation(regard: Shell, model: Path) -> None:
    common: list[str | Path] = ["translate", "--model", model, "--to", "de", *SENTENCES[:2]]
    assert regard(*common, "--stream")[0] == regard(*common)[0]


def test_constraints(regard: Shell, model: Path) -> None:
    common = ("translate", "--model", model, "--to", "de", SENTENCES[0])
    out, _ = regard(*common, "--constraint", "green door", "--constraint", "Boston", "--prefix", "Mary")
    assert "green door" in out
    assert "Boston" in out
    assert out.startswith("Mary")
    _, err = regard(*common, "--constraint", "Tom", "--forbid", "Tom", code=2)
    assert "cannot come without a forbidden one" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--constraint", ""], "a word to require is empty"),
        (["--constraint", "a" * 201], "has 201 characters; at most 200 may be"),
        (["--forbid", " "], "a word to forbid is empty"),
        (["--constraint", "Tom", "--forbid", "Tom"], "cannot come without a forbidden one"),
        (["--prefix", "Tom", "--forbid", "Tom"], "has a forbidden word in it"),
        (["--constraint", "Tom", "--max-length", "1", "--prefix", "Mary sees"], "no room for a prefix"),
    ],
)
def test_constraints_that_cannot_be_met_are_refused_before_the_first_line(
    regard: Shell, model: Path, arguments: list[str], says: str
) -> None:
    out, err = regard("translate", "--model", model, "--to", "de", *arguments, stdin="Tom.\n", code=2)
    assert out == ""
    assert says in err
    assert "line" not in err


def test_a_picture(regard: Shell, model: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "looks.png"
    out, _ = regard("translate", "--model", model, "--to", "de", "Tom sees $5.", "--picture", path)
    assert out.strip()
    assert path.read_bytes().startswith(b"\x89PNG")
    _, err = regard("translate", "--model", model, "--to", "de", "Tom.", "--picture", tmp_path / "looks.txt", code=2)
    assert "its name ends in one of .png" in err


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{sentence}\n\n" for sentence in SENTENCES[:20]), encoding="utf-8")
    return path


def test_a_job_that_is_stopped_goes_on_and_shards_are_the_whole(
    regard: Shell, model: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_jobs, "CHUNK", 8)
    common = ("translate", "--model", model, "--to", "de", "--beam", "2", "--input", lines)
    whole, _ = regard(*common)
    assert whole.count("\n") == 40
    out = lines.with_name("out.txt")
    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", _only(3, Translator.translate))
        _, err = regard(*common, "--output", out, code=1)
    assert "the power is gone" in err
    assert not out.exists()
    partial = lines.with_name("out.txt.partial")
    assert whole.startswith(partial.read_text())
    assert partial.read_text().count("\n") == 24
    with partial.open("a") as file:
        file.write("half a li")
    _, err = regard("translate", "--model", model, "--to", "en", "--input", lines, "--output", out, code=2)
    assert "is of another job" in err
    regard(*common, "--output", out)
    assert out.read_text() == whole
    assert {path.name for path in out.parent.iterdir()} == {"in.txt", "out.txt"}
    parts = [regard(*common, "--shard", f"{number}/3")[0] for number in (1, 2, 3)]
    assert "".join(parts) == whole


def test_any_number_of_threads_gives_the_same(regard: Shell, model: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.txt"
    many.write_text("".join(f"{sentence}\n" for sentence in SENTENCES), encoding="utf-8")
    common = ("translate", "--model", model, "--to", "de", "--beam", "2", "--input", many, "--format", "jsonl")
    before = torch.get_num_threads()
    try:
        three, one = ([*map(json.loads, regard(*common, "--threads", count)[0].splitlines())] for count in ("3", "1"))
    finally:
        torch.set_num_threads(before)
    assert [line["source"] for line in three] == [line["source"] for line in one] == SENTENCES
    # torch rounds otherwise with other threads: where two hypotheses tie, another may go on
    other = [first for first, second in zip(three, one, strict=True) if first["text"] != second["text"]]
    assert len(other) <= len(SENTENCES) // 10


def test_what_is_cut_is_said(regard: Shell, model: Path) -> None:
    common = ("translate", "--model", model, "--to", "de", "--max-length", "4")
    out, err = regard(*common, "42", "Tom sees the house.")
    assert out.count("\n") == 2
    assert err == "regard: line 2: the translation reached its maximum length and is not at its end\n"


def test_words_that_are_lost_are_said_and_written(regard: Shell, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokenizer, "decode", lambda self, tokens: ".")
    out, err = regard("translate", "--model", model, "--to", "de", "--format", "jsonl", "42", "Tom sees the house.")
    first, second = map(json.loads, out.splitlines())
    assert "untranslated" not in first
    assert second["untranslated"] == ["Tom sees the house."]
    assert err.endswith("regard: line 2: nothing was written for 'Tom sees the house.'\n")


def test_a_text_that_is_the_name_of_a_file_is_pointed_out(
    regard: Shell, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Tom.txt").write_text("Tom sees the house.\n")
    for options in ((), ("--stream",)):
        _, err = regard("translate", "--model", model, "--to", "de", "Tom.txt", "Tom." * 200, *options)
        assert "regard: Tom.txt is a file; its name is read as a text (--input reads the file)\n" in err
        assert err.count("is a file") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["Tom.", "--to", "fr"], 2, "language 'fr' is not one that this model writes"),
        (["Tom."], 2, "choose one with to= (--to)"),
        (["Tom.", "--to", "de", "--beam", "0"], 2, "beam is 0"),
        (["Tom.", "--to", "de", "--n-best", "2"], 2, "needs --format tsv or jsonl"),
        (["Tom.", "--to", "de", "--align"], 2, "--align needs --format jsonl"),
        (["Tom.", "--to", "de", "--stream", "--prefix", "a"], 2, "--stream shows plain text"),
        (["Tom.", "--to", "de", "--stream", "--format", "tsv"], 2, "--stream shows plain text"),
        (["Tom.", "--to", "de", "--precision", "int4"], 2, "auto, float or int8"),
        (["Tom.", "--to", "de", "--output", "x"], 2, "give --input"),
        (["--to", "de", "--input", "missing.txt"], 3, "missing.txt is missing"),
        (["--to", "de", "--input", "/dev/null", "--output", "x"], 3, "is not a file that can be read twice"),
        (["--to", "de", "--input", EMPTY], 3, "py.typed is empty"),
        (["--to", "de", "--input", __file__, "--output", "."], 2, ". is a directory; the output is a file"),
        (["--to", "de", "--input", __file__, "--output", "/"], 2, "/ is a directory; the output is a file"),
        (["Tom.", "--to", "de", "--top-k", "3"], 2, "--top-k needs --sample"),
        (["Tom.", "--to", "de", "--diversity", "3"], 2, "--diversity needs --groups"),
        (
            ["Tom.", "--to", "de", "--sample", "--beam", "3"],
            2,
            "--beam is for beam search; it does not go with --sample",
        ),
        (["Tom.", "--to", "de", "--constraint", "\udcff"], 2, "half a character"),
        (["--to", "de", "--input", __file__, "--shard", "3/2"], 2, "'3/2' is not of the form i/n"),
        (["Tom.", "--to", "de", "--model", "nowhere"], 4, "nowhere is no directory"),
        (["Tom.", "--to", "de", "--min-length", "5", "--max-length", "4"], 2, "more than the max_length of 4"),
    ],
)
def test_bad_input_is_one_sentence(
    regard: Shell,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    out, err = regard("translate", "--model", model, *arguments, code=code)
    assert out == ""
    assert says in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_model_of_another_version(regard: Shell, model: Path, tmp_path: Path) -> None:
    other = save_small_model(tmp_path / "other")
    content = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**content, "format": 2}))
    _, err = regard("translate", "--model", other, "--to", "de", "Tom.", code=4)
    assert "is of format 2; this version of regard reads format 1" in err


@pytest.mark.parametrize("verb", [["translate", "Tom."], ["score"]])
def test_a_model_of_another_task_is_refused(regard: Shell, tmp_path: Path, verb: list[str]) -> None:
    other = save_small_model(tmp_path / "other")
    (other / "task.json").write_text('{"tasks": [{"kind": "text2text"}]}')
    _, err = regard(*verb, "--model", other, code=4)
    assert err == f"regard: {other} is for text2text (regard generate), not translation\n"


def test_score_and_evaluate(regard: Shell, model: Path, tmp_path: Path) -> None:
    out, _ = regard("score", "--model", model, "--to", "de", stdin="Tom sees it.\tMary.\nTom sees it.\tit\n")
    first, second = ([float(number) for number in line.split("\t")] for line in out.splitlines())
    assert first[0] < first[1] < 0.0
    assert first != second
    _, err = regard("score", "--model", model, "--to", "de", stdin="Tom.\tMary.\nno tab\n", code=3)
    assert "standard input, line 2: it is not a source and a target with a tab between" in err
    source, reference = tmp_path / "source", tmp_path / "reference"
    source.write_text("".join(f"{sentence}\n" for sentence in SENTENCES[:5]))
    reference.write_text("".join(f"{sentence}\n" for sentence in SENTENCES[5:10]))
    common = ("evaluate", "--model", model, "--source", source, "--reference", reference, "--to", "de")
    out, _ = regard(*common, "--beam", "1", "--bootstrap", "20")
    assert "BLEU = " in out
    assert "chrF2 = " in out
    assert "bs:20" in out
    reference.write_text("one\n")
    assert "5 lines" in regard(*common, code=3)[1]
    assert "go together" in regard("evaluate", "--model", model, "--source", source, code=2)[1]
    assert "do not go with --model" in regard("evaluate", tmp_path, "--model", model, code=2)[1]
    assert "the directory of a run" in regard("evaluate", code=2)[1]
    assert "regard evaluate --model de-en" in regard("evaluate", "de-en", code=2)[1]


def test_the_scores_of_blank_lines_are_blank(regard: Shell, model: Path, tmp_path: Path) -> None:
    common = ("score", "--model", model, "--to", "de")
    one, _ = regard(*common, stdin="Tom sees it.\tMary.\n")
    assert regard(*common, stdin="Tom sees it.\tMary.\n\nTom sees it.\tMary.\n")[0] == f"{one}\n{one}"
    (tmp_path / "pairs").write_text("Tom sees it.\tMary.\n\n")
    regard(*common, "--input", tmp_path / "pairs", "--output", tmp_path / "scores")
    assert (tmp_path / "scores").read_text() == f"{one}\n"


def test_scores_are_of_the_weights_as_they_are(regard: Shell, model: Path) -> None:
    common = ("score", "--model", model, "--to", "de")
    before = torch.get_num_threads()
    try:
        one, _ = regard(*common, "--threads", "1", "--device", "cpu", stdin="Tom.\tMary.\n")
    finally:
        torch.set_num_threads(before)
    assert regard(*common, "--precision", "auto", stdin="Tom.\tMary.\n")[0] == one
    assert "--precision int8 is for decoding" in regard(*common, "--precision", "int8", code=2)[1]


def test_a_source_that_cannot_be_scored_is_named_by_its_line(
    regard: Shell, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(self: Translator, sources: list[str], targets: list[str], *, to: str) -> list[Hypothesis]:
        if "long" in sources:
            raise InputError("the source is too long")
        return [Hypothesis([], -1.0, -2.0, cut=False)] * len(sources)

    monkeypatch.setattr(Translator, "score", refusing)
    _, err = regard("score", "--model", model, "--to", "de", stdin="a\tb\n\nlong\tb\n", code=3)
    assert err == "regard: standard input, line 3: the source is too long\n"


def test_evaluate_takes_the_test_set_that_a_model_comes_with(regard: Shell, tmp_path: Path) -> None:
    model = save_small_model(tmp_path / "model")
    common = ("evaluate", "--model", model, "--beam", "1", "--bootstrap", "5")
    assert "test.tsv is missing" in regard(*common, code=4)[1]
    pairs = zip(SENTENCES[:5], SENTENCES[5:10], strict=True)
    (model / "test.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
    assert "test.json is missing; it says which column" in regard(*common, code=4)[1]
    (model / "test.json").write_text('{"columns": ["en", "en"]}')
    assert "test.json does not name two languages" in regard(*common, code=4)[1]
    (model / "test.json").write_text('{"columns": ["en", "de"]}')
    both, _ = regard(*common)
    one, _ = regard(*common, "--to", "de")
    assert both.startswith("de → en, 5 pairs: ")
    assert one.startswith("en → de, 5 pairs: ")
    assert one in both
    assert max(map(len, both.splitlines())) <= 80
    source, reference = tmp_path / "source", tmp_path / "reference"
    source.write_text("".join(f"{text}\n" for text in SENTENCES[:5]))
    reference.write_text("".join(f"{text}\n" for text in SENTENCES[5:10]))
    files, _ = regard(*common, "--source", source, "--reference", reference, "--to", "de")
    assert files.splitlines()[1:] == one.splitlines()[1:]
    assert "language 'fr'" in regard("evaluate", "--model", model, "--to", "fr", code=2)[1]
    (model / "test.json").write_text('{"columns": ["en", "fr"]}')
    assert "test.tsv is in en and fr" in regard("evaluate", "--model", model, "--to", "de", code=2)[1]


def test_what_is_left_of_another_job_is_not_taken_for_this_ones(
    regard: Shell, model: Path, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state beside a file that is shorter than it says must not become a hole in the output."""
    monkeypatch.setattr(text_jobs, "CHUNK", 8)
    common = ("translate", "--model", model, "--to", "de", "--beam", "1", "--input", lines)
    whole, _ = regard(*common)
    out = lines.with_name("out.txt")
    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", _only(1, Translator.translate))
        regard(*common, "--output", out, code=1)
    lines.with_name("out.txt.partial").write_bytes(b"")
    regard(*common, "--output", out)
    assert out.read_text() == whole
    _, err = regard(*common, "--output", lines, code=2)
    assert "is the input too" in err


def _only(times: int, inner: Callable[..., object]) -> Callable[..., object]:
    calls = count(1)

    def failing(*arguments: object, **options: object) -> object:
        if next(calls) > times:
            raise OSError("the power is gone")
        return inner(*arguments, **options)

    return failing


def test_tables_have_one_line_for_each_translation(regard: Shell, model: Path) -> None:
    text = "Tom.\u2028Mary.\rIt.\u0085"
    for form in ("tsv", "jsonl"):
        out, _ = regard("translate", "--model", model, "--to", "de", "--format", form, text)
        assert len(out.splitlines()) == 1


def test_a_shortlist_is_learned_and_used(regard: Shell, tmp_path: Path) -> None:
    model = save_small_model(tmp_path / "model")
    (tmp_path / "source").write_text("\n".join(SENTENCES) + "\n")
    (tmp_path / "target").write_text("\n".join(reversed(SENTENCES)) + "\n")
    files = ("--source", tmp_path / "source", "--target", tmp_path / "target")
    assert "no shortlist" in regard("translate", "--model", model, "--to", "de", "--shortlist", "it", code=2)[1]
    out, _ = regard("shortlist", model, *files, "--to", "de", "--each", "400", "--always", "400")
    assert "up to 400 words" in out
    every, _ = regard("translate", "--model", model, "--to", "de", SENTENCES[7])
    listed, _ = regard("translate", "--model", model, "--to", "de", "--shortlist", SENTENCES[7])
    assert every
    assert listed
    _, refusal = regard("translate", "--model", model, "--to", "en", "--shortlist", "it", code=4)
    assert "does not cover the requested language" in refusal
    regard("shortlist", model, *files, "--to", "en")
    regard("translate", "--model", model, "--to", "de", "--shortlist", SENTENCES[7])
    (tmp_path / "source").write_text("")
    (tmp_path / "target").write_text("")
    assert "no words in it" in regard("shortlist", model, *files, "--to", "en", code=3)[1]


def test_a_shortlist_needs_a_directory_that_it_is_written_to(
    regard: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for model in ("de-en", "nowhere"):
        _, err = regard("shortlist", model, "--source", "a", "--target", "b", "--to", "en", code=2)
        assert err == f"regard: {model} is not the directory of a model, in which the shortlist would be written\n"
    assert not list(tmp_path.iterdir())
