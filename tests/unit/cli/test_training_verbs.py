"""The verbs around training, called as the command line calls them."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

import regard
from regard import models
from regard.cli import main
from regard.training.checkpoints import step_directories
from tests.unit.training.runs import SMALL

SHARED = Path(__file__).parents[3].parent / "shared" / "data"


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("verbs")
    (directory / "run.toml").write_text(SMALL.replace("every = 6", 'every = 5\nmetric = "chrf"'))
    monkeypatch = pytest.MonkeyPatch()
    changes = ("--set", "averaging.kind=last", "--set", "averaging.count=3")
    assert call(monkeypatch, "train", directory / "run.toml", "--out", directory / "out", *changes) == 0
    monkeypatch.undo()
    torch.set_num_threads(1)
    return directory / "out"


def test_evaluate_prints_the_scores_with_their_signatures(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "evaluate", trained) == 0
    loss, kind, *scores = capsys.readouterr().out.splitlines()
    assert loss.startswith("loss ")
    assert kind == "translation"
    assert [line.split()[0] for line in scores] == ["BLEU", "chrF2", "exact"]
    assert all("95 % interval" in line for line in scores)
    assert call(monkeypatch, "evaluate", trained, "--metric", "bleu", "--beam", "2") == 0
    told = capsys.readouterr().out
    assert "perplexity" in told
    assert "signature nrefs:1|case:mixed" in told
    snapshot = step_directories(trained / "snapshots")[0]
    assert call(monkeypatch, "evaluate", snapshot, "--run", trained) == 0
    assert call(monkeypatch, "evaluate", snapshot) == 4
    said = capsys.readouterr().err
    assert "run.json is missing" in said
    assert "--run names the one" in said


def test_a_run_that_has_not_ended_is_no_model_yet(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    for name in ("config.json", "model.safetensors", "README.md", "generation.json"):
        (run / name).unlink()
    newest = step_directories(run / "snapshots")[-1]
    for arguments in (("evaluate", run), ("translate", "--model", run, "text"), ("describe", run)):
        assert call(monkeypatch, *arguments) == 4
        said = capsys.readouterr().err
        assert f"{run} is a run that has not ended" in said
        assert f"its newest snapshot is {newest}" in said
    assert call(monkeypatch, "evaluate", newest, "--run", run) == 0
    assert call(monkeypatch, "average", run, "--last", "1", "-o", tmp_path / "model") == 0
    assert call(monkeypatch, "translate", "--model", tmp_path / "model", "May 5") == 0
    shutil.rmtree(run / "snapshots")
    capsys.readouterr()
    assert call(monkeypatch, "evaluate", run) == 4
    assert "goes on with it" in capsys.readouterr().err


def test_a_run_says_its_size_its_place_and_its_scores_in_a_few_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(SMALL)
    changes = ("--set", "validation.metric=bleu")
    assert call(monkeypatch, "train", tmp_path / "run.toml", "--out", tmp_path / "out", *changes) == 0
    said = capsys.readouterr().err.splitlines()
    assert any(re.fullmatch(rf"model: [\d,]+ parameters; writing to {tmp_path / 'out'}", line) for line in said)
    validations = [line for line in said if "  validation:" in line]
    assert len(validations) == 3
    for line in validations:
        assert re.fullmatch(r"step \d+  validation: BLEU \d+\.\d  loss \d\.\d\d(  best so far)?", line)
    assert any(re.fullmatch(r"the model's weights are the last ones, of step 14: BLEU .*", line) for line in said)


def test_average(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "average", trained, "--last", "2", "-o", tmp_path / "last") == 0
    assert call(monkeypatch, "average", trained, "--best", "2", "-o", tmp_path / "best") == 0
    written = {path.name for path in (tmp_path / "last").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "task.json"} <= written
    snapshots = step_directories(trained / "snapshots")
    assert call(monkeypatch, "average", *snapshots[-2:], "-o", tmp_path / "named") == 0
    named, last = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("named", "last"))
    assert named == last
    assert call(monkeypatch, "average", trained, "--last", "2", "--half", "-o", tmp_path / "half") == 0
    assert (tmp_path / "half" / "model.safetensors").stat().st_size < 0.6 * len(last)
    capsys.readouterr()
    assert call(monkeypatch, "average", trained, "--last", "9", "-o", tmp_path / "many") == 2
    assert "9 snapshots were asked for" in capsys.readouterr().err
    assert call(monkeypatch, "average", trained, "--last", "1", "-o", tmp_path / "last") == 2
    assert call(monkeypatch, "average", tmp_path, "--last", "1", "-o", tmp_path / "none") == 4


def test_an_average_has_what_lies_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.path_of("de-en")
    assert call(monkeypatch, "average", model, "-o", tmp_path / "mean") == 0
    written = {path.name for path in (tmp_path / "mean").iterdir()}
    assert {path.name for path in model.glob("*.json")} - {"test.json"} <= written
    texts = [regard.load(path).translate("ich komme aus berlin", to="en").text for path in (model, tmp_path / "mean")]
    assert texts[0] == texts[1]


def test_plot(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert call(monkeypatch, "plot", trained, "-o", tmp_path / "curves.png") == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert call(monkeypatch, "plot", trained, "-o", tmp_path / "curves.txt") == 2
    assert call(monkeypatch, "plot", tmp_path) == 4
    assert "metrics.jsonl is missing" in capsys.readouterr().err


def test_dry_run_predicts_without_leaving_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(SMALL)
    assert call(monkeypatch, "train", tmp_path / "run.toml", "--dry-run", "--out", tmp_path / "out") == 0
    told = capsys.readouterr().out
    for expected in ("parameters", "peak memory", "time per step", "time in all"):
        assert expected in told
    assert not (tmp_path / "out").exists()


def test_doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call(monkeypatch, "doctor", "--seconds", "1") == 0
    told = capsys.readouterr().out
    for expected in ("processor", "random bytes", "bfloat16", "→ Train ", "gloo", "free here"):
        assert expected in told
    assert max(map(len, told.splitlines())) <= 80
    assert " 0." not in told.partition("dropout")[2].partition("processes")[0], "a factor below 1"


def test_train_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(SMALL)
    (tmp_path / "latin.toml").write_bytes(b"# a run\n# gr\xfcn\n")
    for arguments, code, says in (
        ((tmp_path / "none.toml",), 2, "none.toml is missing"),
        (("no-recipe",), 2, "neither a file nor one of the recipes: dates"),
        ((tmp_path / "run.toml", "--set", "training.sede=1"), 2, "did you mean seed?"),
        (
            (tmp_path / "run.toml", "--set", "model.heads=3"),
            2,
            "run.toml with --set model.heads=3: model: heads is not a known key; did you mean num_heads?",
        ),
        (
            (tmp_path / "run.toml", "--set", "schedule.learning_rate=1"),
            2,
            "learning_rate is not a known key; did you mean peak?",
        ),
        ((tmp_path / "latin.toml",), 2, "latin.toml, line 2 is not UTF-8"),
        ((tmp_path / "run.toml", "--set", "tokenizer.source=no.json"), 4, "no.json is missing"),
    ):
        assert call(monkeypatch, "train", *arguments, "--out", tmp_path / "out") == code
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        (b"a\nb\n", b"x\n", "b ends after line 1"),
        (b"a\xff\n", b"x\n", "a, line 1 is not UTF-8"),
        (b"", b"", "there are no examples whose texts are not empty"),
        (b"\n \n", b"x\ny\n", "there are no examples whose texts are not empty"),
    ],
)
def test_bad_data(
    source: bytes,
    target: bytes,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "run.toml").write_text(SMALL)
    (tmp_path / "a").write_bytes(source)
    (tmp_path / "b").write_bytes(target)
    corpus = 'data.train=[{kind="parallel", source="a", target="b"}]'
    assert call(monkeypatch, "train", tmp_path / "run.toml", "--set", corpus, "--out", tmp_path / "out") == 3
    assert says in capsys.readouterr().err


def test_odd_but_good_data_is_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A byte order mark, carriage returns, NUL, an empty line and a very long one."""
    (tmp_path / "run.toml").write_text(SMALL)
    long = b"word " * 5_000
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\ntw\x00o\r\n\r\n" + long + b"\nlast")
    (tmp_path / "b").write_bytes(b"eins\nzwei\ndrei\nvier\nletzte")
    corpus = 'data.train=[{kind="parallel", source="a", target="b"}]'
    changes = ("--set", corpus, "--set", "training.steps=3", "--set", "data.valid=[]")
    assert call(monkeypatch, "train", tmp_path / "run.toml", *changes, "--out", tmp_path / "out") == 0
    told = capsys.readouterr().err
    assert "training: 3 pairs; 1 with an empty side left out; 1 longer than data.max_length 256 left out" in told


def test_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "data", "list") == 0
    assert "tatoeba-de-en" in capsys.readouterr().out
    assert call(monkeypatch, "data", "get", "nothing") == 2
    if not SHARED.exists():
        pytest.skip("the shared data is not here")
    source = SHARED / "multi30k" / "raw"
    assert call(monkeypatch, "data", "get", "multi30k", "--from", source, "--out", tmp_path / "m") == 0
    assert "research only" in capsys.readouterr().err
    assert len((tmp_path / "m" / "train.de").read_text().splitlines()) == 29_000


def test_split_does_not_write_over_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "train.tsv"
    table.write_text("".join(f"one {n}\teins {n}\n" for n in range(9)))
    before = table.read_text()
    assert call(monkeypatch, "data", "split", table, "--out", tmp_path, "--valid", "1", "--test", "1") == 2
    assert "train.tsv is one of the files that its parts would be written to" in capsys.readouterr().err
    assert table.read_text() == before


def test_json_lines_are_split_by_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "all.jsonl"
    lines = [json.dumps({"id": n, "abstract": f"Text {n}. " * 20, "title": f"About {n}"}) for n in range(20)]
    table.write_text("\n".join(lines) + "\n")
    options = ("--out", tmp_path / "parts", "--valid", "2", "--test", "3")
    assert call(monkeypatch, "data", "split", table, *options) == 2
    assert "all.jsonl has JSON lines; --fields names their two fields" in capsys.readouterr().err
    for fields in ("abstract", "abstract,", "title,title", "a,b,c"):
        assert call(monkeypatch, "data", "split", table, "--fields", fields, *options) == 2
        assert "two fields, such as document,summary, were expected" in capsys.readouterr().err
    assert call(monkeypatch, "data", "split", table, "--fields", "abstract,author", *options) == 3
    assert "all.jsonl, line 1 has no field 'author'" in capsys.readouterr().err
    assert call(monkeypatch, "data", "split", table, "--fields", "abstract,title", *options) == 0
    parts = {
        part: (tmp_path / "parts" / f"{part}.jsonl").read_text().splitlines() for part in ("train", "valid", "test")
    }
    assert [len(part) for part in parts.values()] == [15, 2, 3]
    assert sorted(line for part in parts.values() for line in part) == sorted(lines)


def test_summaries_of_similar_documents_are_put_before_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    known, data, out = tmp_path / "train.jsonl", tmp_path / "test.jsonl", tmp_path / "new" / "test.jsonl"
    pairs = [("the cat sat", "cats"), ("a dog ran off", "dogs"), ("a dog sat", "tired dogs")]
    known.write_text("".join(json.dumps({"document": a, "summary": b}) + "\n" for a, b in pairs))
    data.write_text('{"id": 7, "document": "this dog – ran"}\n')
    assert call(monkeypatch, "data", "similar", known, data, "--count", "2", "-o", out) == 0
    assert json.loads(out.read_text()) == {"id": 7, "document": "dogs | tired dogs | this dog – ran"}
    assert call(monkeypatch, "data", "similar", known, known, "--count", "1") == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert [json.loads(line)["document"].split(" | ")[0] for line in lines] == ["tired dogs", "tired dogs", "dogs"]
    for more in ((), ("-o", out)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a dog\nran")))
        assert call(monkeypatch, "data", "similar", known, "--count", "1", *more) == 0
    assert capsysbinary.readouterr().out == b"dogs | a dog ran\n"
    assert out.read_text() == "dogs | a dog ran\n"


def test_lines_that_are_unusual_keep_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    known, data = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    known.write_text('{"answers": "a dog ran", "summary": "dogs"}\n')
    lines = [{"answers": " ", "x": "\ud800"}, {"answers": "the dog\u2028sat", "x": "é"}]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert call(monkeypatch, "data", "similar", known, data, "--fields", "answers,summary") == 0
    written = capsysbinary.readouterr().out.decode().splitlines()
    assert [json.loads(line) for line in written] == [lines[0], lines[1] | {"answers": "dogs | the dog\u2028sat"}]


def test_similar_documents_need_their_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known, data, out = tmp_path / "train.jsonl", tmp_path / "test.jsonl", tmp_path / "out.jsonl"
    known.write_text('{"document": "a", "summary": "b"}\n')
    data.write_text('{"document": "a"}\n{"text": "a"}\n')
    assert call(monkeypatch, "data", "similar", known, data, "-o", out) == 3
    assert "test.jsonl, line 2 has no field 'document'" in capsys.readouterr().err
    assert not out.exists()
    assert call(monkeypatch, "data", "similar", data, data) == 3
    assert "test.jsonl, line 1 has no field 'summary'" in capsys.readouterr().err
    assert call(monkeypatch, "data", "similar", known, data, "--fields", "a") == 2
    for read in (known, data):
        before = read.read_text()
        assert call(monkeypatch, "data", "similar", known, data, "-o", read) == 2
        assert "is one of the files that are read" in capsys.readouterr().err
        assert read.read_text() == before
    assert call(monkeypatch, "data", "similar", tmp_path / "none", data) == 3
    for nothing in ("", '{"document": "a", "summary": " "}\n'):
        known.write_text(nothing)
        assert call(monkeypatch, "data", "similar", known, data) == 3
        assert "train.jsonl has no documents with summaries" in capsys.readouterr().err


def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text(SMALL)
    code = call(monkeypatch, "train", tmp_path / "run.toml", "--tensorboard", "--out", tmp_path / "out")
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        assert code == 2
        assert "pip install tensorboard" in capsys.readouterr().err
    else:
        assert code == 0
        assert list((tmp_path / "out" / "tensorboard").glob("events*"))


def test_evaluate_takes_the_device_of_a_run(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ((), ("--metric", "bleu")):
        assert call(monkeypatch, "evaluate", trained, "--device", "nonsense", *arguments) != 0
        assert "device 'nonsense' is not known" in capsys.readouterr().err
        assert call(monkeypatch, "evaluate", trained, "--device", "cpu", *arguments) == 0
