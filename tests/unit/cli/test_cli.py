"""The command line as a user meets it: a process, its output, its exit code."""

import errno
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard import Transformer, TransformerConfig
from regard.cli.lines import input_lines
from regard.errors import DataError


def regard(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "regard", *map(str, arguments)]
    result = subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)
    return subprocess.CompletedProcess(command, result.returncode, result.stdout.decode(), result.stderr.decode())


def check_refused(result: subprocess.CompletedProcess[str], code: int, *says: str) -> None:
    assert result.returncode == code
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    for expected in says:
        assert expected in result.stderr


def test_explain_tells_the_worked_example() -> None:
    result = regard("explain")
    assert result.returncode == 0
    for expected in ("0.506   0.186  0.307", "scores = Q × Kᵀ / √4", "softmax(scores)", "(T, T) = (3, 3)"):
        assert expected in result.stdout


def test_explain_says_where_its_numbers_come_from() -> None:
    def told(*arguments: str) -> str:
        return " ".join(regard("explain", *arguments).stdout.split())

    assert "W_Q, W_K and W_V are the identity" in told()
    assert "W_Q and W_V are the identity" in told("--x", "1 0; 0 1", "--w-k", "0 1; 1 0")
    assert "identity" not in told("--x", "1 0; 0 1", "--w-q", "1 0; 0 1", "--w-k", "0 1; 1 0", "--w-v", "1; 1")
    assert "random numbers, drawn from seed 3. Nothing is trained" in told("the cat", "--seed", "3")


def test_explain_takes_matrices_files_and_sentences(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1 0\n0 1\n")
    assert "0.731  0.269" in regard("explain", "--x", tmp_path / "x.txt", "--scale", "1").stdout
    assert "0.731  0.269" in regard("explain", "--x", "1,0; 0,1", "--scale", "1").stdout
    told = regard("explain", "the cat sat", "--causal").stdout
    assert "-∞" in told
    assert "sat" in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--x", "1 2; 3"], "--x: row 2 has 1 numbers, the first row 2"),
        (["--x", "1 two"], "row 1, '1 two', is not all numbers"),
        (["--x", ";"], "--x holds no numbers"),
        (["--w-q", "1 2"], "W_Q has 1 rows; X is 4 wide"),
        (["a sentence", "--x", "1"], "a sentence or matrices, not both"),
        (["--x", "missing.txt"], "'missing.txt', is not all numbers, and there is no file"),
        (["--scale", "nan"], "not finite"),
        (["--x", "1e200 1e200"], "not finite"),
        (["--d-model", "8", "--seed", "0"], "--d-model is for a sentence, and there is none"),
        (["--x", "1 2", "--seed", "0"], "--seed is for a sentence, and there is none"),
    ],
)
def test_explain_says_what_is_wrong(arguments: list[str], says: str) -> None:
    check_refused(regard("explain", *arguments), 2, says)


def test_explain_takes_anything_for_a_word_and_cuts_no_number_off() -> None:
    told = regard("explain", "[/x] [red] :smile: " + "word " * 12)
    assert told.returncode == 0
    for word in ("[/x]", "[red]", ":smile:"):
        assert word in told.stdout
    assert "…" not in told.stdout
    wide = "; ".join(" ".join(["0.25000"] * 16) for _ in range(16))
    assert regard("explain", "--x", wide).returncode == 0


def test_describe(tmp_path: Path) -> None:
    Transformer(TransformerConfig.preset("tiny", vocab_size=50)).save(tmp_path / "model")
    from_disk, from_preset = (
        regard("describe", tmp_path / "model"),
        regard("describe", "--preset", "tiny", "--vocab-size", "50"),
    )
    assert from_disk.returncode == 0
    assert from_disk.stdout == from_preset.stdout
    assert "(B, 4, T, 32)" in from_disk.stdout
    check_refused(regard("describe"), 2, "one of the two")
    check_refused(regard("describe", "--preset", "huge"), 2, "'huge'", "tiny, small, base, big")
    check_refused(regard("describe", "--preset", "tiny", "--vocab-size", str(10**17)), 2, "vocab_size is 1000")
    check_refused(regard("describe", tmp_path / "model", "--vocab-size", "5"), 2, "--vocab-size is for a preset")
    check_refused(regard("describe", tmp_path), 4, str(tmp_path / "config.json"), "missing")


def test_convert(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the peer is not installed")
    config = transformers.BartConfig(
        vocab_size=20, d_model=8, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16,
        encoder_attention_heads=2, decoder_attention_heads=2,
    )  # fmt: skip
    transformers.BartForConditionalGeneration(config).save_pretrained(tmp_path / "theirs")
    assert regard("convert", tmp_path / "theirs", tmp_path / "ours").returncode == 0
    assert Transformer.load(tmp_path / "ours").config.positions == "learned"
    check_refused(regard("convert", tmp_path / "theirs", tmp_path / "ours"), 4, "already exists")
    check_refused(regard("convert", tmp_path / "nowhere", tmp_path / "new"), 4, "nowhere is missing")
    check_refused(regard("describe", tmp_path / "theirs"), 4, "regard convert")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    check_refused(regard("convert", tmp_path / "theirs", tmp_path / "file" / "new"), 4, "cannot be written")


def test_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the cat sat on the mat\n" * 5)
    path = tmp_path / "tokenizer.json"
    assert regard("tokenizer", "train", tmp_path / "text", "-o", path, "--vocab-size", "380").returncode == 0
    text = "the cat\u2028sat\n\n  on the 🐕\n"
    pieces = regard("tokenizer", "encode", path, stdin=text.encode())
    assert pieces.stdout.startswith("▁the ▁cat <0xE2> <0x80> <0xA8>")
    assert regard("tokenizer", "decode", tmp_path, stdin=pieces.stdout.encode()).stdout == text
    check_refused(regard("tokenizer", "encode", path, stdin=b"\xff\n"), 3, "standard input, line 1 is not UTF-8")
    unknown = regard("tokenizer", "decode", path, stdin=b"a\nunheard-of\n")
    assert (unknown.returncode, unknown.stdout) == (3, "a\n")
    assert "standard input, line 2: token 'unheard-of'" in unknown.stderr
    check_refused(regard("tokenizer", "encode", tmp_path / "none"), 4, "missing")
    check_refused(regard("tokenizer", "train", tmp_path / "text", "-o", path), 2, "already exists")
    check_refused(regard("tokenizer", "train", tmp_path / "none", "-o", tmp_path / "t"), 3, "none is missing")
    assert not (tmp_path / "t").exists()


def test_an_unknown_verb_is_a_usage_error() -> None:
    check_refused(regard("explian"), 2, "explain")


def test_nothing_heavy_is_loaded_for_help() -> None:
    script = "import sys, regard.cli.app; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


@pytest.fixture
def nobody() -> Iterator[int]:
    """A pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize(
    "arguments",
    [
        ["data", "list"],
        ["explain"],
        ["translate", "--to", "en", "Ich habe Hunger."],
        ["translate", "--to", "en", "--stream", "Ich habe Hunger."],
    ],
)
def test_output_that_nobody_reads_any_more_is_no_error(arguments: list[str], nobody: int) -> None:
    command = [sys.executable, "-m", "regard", *arguments]
    result = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_verb_that_is_still_writing_may_lose_its_reader(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the cat sat on the mat\n" * 20_000)
    path = tmp_path / "tokenizer.json"
    assert regard("tokenizer", "train", tmp_path / "text", "-o", path, "--vocab-size", "380").returncode == 0
    command = [sys.executable, "-m", "regard", "tokenizer", "encode", str(path)]
    with (
        (tmp_path / "text").open() as lines,
        subprocess.Popen(command, stdin=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("▁the".encode())
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_an_error_that_nobody_reads_keeps_its_exit_code(nobody: int) -> None:
    command = [sys.executable, "-m", "regard", "describe", "--preset", "huge"]
    assert subprocess.run(command, stderr=nobody, stdout=nobody, timeout=120, check=False).returncode == 2


def run_by_shell(arguments: str) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} -m regard {arguments}"
    return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)


def test_a_standard_stream_may_be_closed(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the cat sat on the mat\n" * 5)
    path = tmp_path / "tokenizer.json"
    closed = run_by_shell(f"tokenizer train {tmp_path / 'text'} -o {path} --vocab-size 380 >&- 2>&-")
    assert closed.returncode == 0
    for arguments in (f"tokenizer encode {path} <&-", "translate --to en <&-", "data list >&-"):
        result = run_by_shell(arguments)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert run_by_shell("describe --preset huge 2>&-").returncode == 2


def test_standard_input_that_cannot_be_read_is_bad_data(monkeypatch: pytest.MonkeyPatch) -> None:
    class Directory(io.BytesIO):
        def __next__(self) -> bytes:
            raise IsADirectoryError(errno.EISDIR, "Is a directory")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Directory()))
    with pytest.raises(DataError, match=r"^standard input cannot be read after line 0: Is a directory$"):
        list(input_lines())
