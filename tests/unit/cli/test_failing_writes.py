"""A write that the system refuses is one sentence; nothing half-written is left, and what was there stays."""

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from regard.training.checkpoints import step_directories
from tests.unit.models import SENTENCES, save_small_model
from tests.unit.training.runs import SMALL


def regard(*arguments: str | Path, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """Call the command line in a process that may not write a file of more than so many bytes."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "regard", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, preexec_fn=limited if limit else None
    )


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@contextmanager
def nothing_changes(directory: Path) -> Iterator[None]:
    before, directories = contents(directory), {path for path in directory.rglob("*") if path.is_dir()}
    yield
    assert contents(directory) == before
    assert {path for path in directory.rglob("*") if path.is_dir()} == directories


def check_refused(result: subprocess.CompletedProcess[str], path: Path) -> None:
    assert result.returncode == 4, result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"regard: {path}")
    assert last.endswith(" cannot be written: File too large (see `ulimit -f`)")
    assert "Traceback" not in result.stderr


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("writes")
    (directory / "run.toml").write_text(SMALL)
    assert regard("train", directory / "run.toml", "--out", directory / "run").returncode == 0
    save_small_model(directory / "model")
    (directory / "lines").write_text("\n".join(SENTENCES * 4) + "\n")
    (directory / "pairs.tsv").write_text(
        "".join(f"{a}\t{b} too\n" for a, b in zip(SENTENCES, reversed(SENTENCES), strict=True))
    )
    return directory


VERBS: dict[str, Callable[[Path], tuple[str | Path, ...]]] = {
    "run/curves.png": lambda base: ("plot", base / "run"),
    "deep/new/mean": lambda base: ("average", base / "run", "--last", "1", "-o", base / "deep" / "new" / "mean"),
    "deep/tokenizer.json": lambda base: (
        *("tokenizer", "train", base / "lines", "-o", base / "deep" / "tokenizer.json", "--vocab-size", "400"),
    ),
    "parts": lambda base: (
        *("data", "split", base / "pairs.tsv", "--out", base / "parts", "--valid", "0", "--test", "0"),
    ),
    "deep/out.txt": lambda base: (
        *("translate", "--model", base / "model", "--to", "de", "--beam", "1"),
        *("--input", base / "lines", "--output", base / "deep" / "out.txt"),
    ),
    "model/shortlist.safetensors": lambda base: (
        *("shortlist", base / "model", "--source", base / "lines", "--target", base / "lines", "--to", "de"),
    ),
}


@pytest.mark.parametrize("name", VERBS)
def test_a_file_that_may_not_be_as_large(base: Path, name: str) -> None:
    if name == "run/curves.png":
        pytest.importorskip("matplotlib")
    with nothing_changes(base):
        check_refused(regard(*VERBS[name](base), limit=2000), base / name)


def test_convert(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the peer is not installed")
    config = transformers.BartConfig(
        vocab_size=200, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
        encoder_attention_heads=2, decoder_attention_heads=2,
    )  # fmt: skip
    transformers.BartForConditionalGeneration(config).save_pretrained(tmp_path / "theirs")
    with nothing_changes(tmp_path):
        check_refused(regard("convert", tmp_path / "theirs", tmp_path / "new" / "ours", limit=2000), tmp_path / "new")


@pytest.mark.parametrize("changes", [("checkpoints.every=4",), ("validation.every=2",)])
def test_a_run_that_cannot_save_leaves_nothing(tmp_path: Path, changes: tuple[str, ...]) -> None:
    """The first thing that is too large is the first checkpoint, or the first snapshot; the cache is elsewhere."""
    (tmp_path / "run.toml").write_text(SMALL)
    sets = [word for change in changes for word in ("--set", change)]
    result = regard("train", tmp_path / "run.toml", "--out", tmp_path / "new" / "out", *sets, limit=45_000)
    check_refused(result, tmp_path / "new" / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "run.toml"]


def test_a_resumed_run_that_cannot_save_leaves_what_was_there(base: Path) -> None:
    sets = ("--set", "training.steps=40", "--set", "training.report_every=1")
    with nothing_changes(base):
        result = regard("train", base / "run.toml", "--out", base / "run", *sets, limit=45_000)
        check_refused(result, base / "run")
    assert [path.name for path in step_directories(base / "run" / "checkpoints")][-1] == "step-0000014"


def test_standard_output_that_may_not_be_as_large(base: Path) -> None:
    command = [sys.executable, "-m", "regard", "tokenizer", "encode", str(base / "model")]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    with (base / "lines").open() as lines, (base / "pieces").open("w") as pieces:
        result = subprocess.run(
            command, stdin=lines, stdout=pieces, stderr=subprocess.PIPE, text=True, check=False, preexec_fn=limited
        )
    (base / "pieces").unlink()
    assert result.stderr == "regard: standard output cannot be written: File too large\n"
    assert result.returncode == 1
