"""The model directory: what is saved is what is loaded, and what is broken is told."""

import json
import os
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from safetensors.torch import load_file, save_file

from regard import ModelError, Transformer, TransformerConfig
from tests.strategies import VOCAB, configs, model_of, tokens


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB), dtype=torch.float32).save(tmp_path / "model")
    return tmp_path / "model"


@settings(max_examples=30)
@given(configs(relative=True))
@torch.no_grad()
def test_a_saved_model_gives_the_same_logits(
    tmp_path_factory: pytest.TempPathFactory, config: TransformerConfig
) -> None:
    path = tmp_path_factory.mktemp("saved") / "model"
    model = model_of(config)
    model.save(path)
    loaded = Transformer.load(path)
    assert loaded.config == config
    assert not loaded.training
    x = tokens(2, 4, min(config.source_size, VOCAB))
    arguments = (x, x) if config.kind == "encoder-decoder" else (x,)
    assert loaded(*arguments).equal(model(*arguments))


def test_only_the_files_it_should_hold(saved: Path) -> None:
    assert sorted(file.name for file in saved.iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((saved / "config.json").read_text())["format"] == 1
    assert list(saved.parent.iterdir()) == [saved]
    umask = os.umask(0)
    os.umask(umask)
    assert saved.stat().st_mode & 0o777 == 0o777 & ~umask


def test_saving_again_replaces_the_model_and_keeps_its_neighbors(saved: Path) -> None:
    (saved / "tokenizer.json").write_text("{}")
    (saved / "deeper").mkdir()
    (saved / "deeper" / "file").write_text("kept")
    other = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB, d_ff=64), dtype=torch.float32)
    other.save(saved)
    assert Transformer.load(saved).config.d_ff == 64
    assert (saved / "tokenizer.json").read_text() == "{}"
    assert (saved / "deeper" / "file").read_text() == "kept"
    assert list(saved.parent.iterdir()) == [saved]


def test_a_save_that_fails_leaves_the_old_model_whole(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {file.name: file.read_bytes() for file in saved.iterdir()}

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("regard.model.directory.save_file", full_disk)
    with pytest.raises(ModelError, match="cannot be written.*No space"):
        Transformer(TransformerConfig.preset("tiny", vocab_size=VOCAB)).save(saved)
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before
    assert list(saved.parent.iterdir()) == [saved]


def test_odd_places_to_save_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB), dtype=torch.float32)
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "dangling").symlink_to(tmp_path / "nowhere")
    model.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(file.name for file in (tmp_path / "real").iterdir()) == [
        "config.json",
        "dangling",
        "model.safetensors",
    ]
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o700
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    model.save(".")
    assert Transformer.load(".").config == model.config
    assert Path.cwd() == tmp_path / "here"
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="file is a file"):
        model.save(tmp_path / "file")
    with pytest.raises(ModelError, match="cannot be written"):
        model.save(tmp_path / "file" / "model")


def test_others_may_read_what_new_files_let_them_read(tmp_path: Path) -> None:
    Transformer(TransformerConfig.preset("tiny", vocab_size=20)).save(tmp_path / "model")
    (tmp_path / "new").touch()
    for file in (tmp_path / "model").iterdir():
        assert file.stat().st_mode == (tmp_path / "new").stat().st_mode


def test_loading_draws_nothing_from_the_seed(saved: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    Transformer.load(saved)
    assert torch.rand(1).equal(expected)


def check_refused(path: Path, *says: str) -> None:
    with pytest.raises(ModelError) as caught:
        Transformer.load(path)
    message = str(caught.value)
    assert "\n" not in message
    for expected in (str(path), *says):
        assert expected in message


def test_a_missing_directory_or_file(saved: Path, tmp_path: Path) -> None:
    check_refused(tmp_path / "nowhere", "missing")
    check_refused(saved / "config.json", "a file")
    (saved / "model.safetensors").rename(tmp_path / "away")
    check_refused(saved, "model.safetensors is missing")
    (saved / "config.json").unlink()
    check_refused(saved, "config.json is missing")


@pytest.mark.parametrize("size", [0, 4, 5000])
def test_truncated_weights(saved: Path, size: int) -> None:
    content = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(content[:size])
    check_refused(saved, "model.safetensors is truncated or not a safetensors file")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"format": 1, "model": {', "not JSON"),
        ("[1]", "JSON list"),
        ('{"format": 2, "model": {}}', "format 2"),
        ('{"model_type": "marian"}', "Hugging Face's for a marian model"),
        ('{"format": 1}', "all of it is None"),
        ('{"format": true, "model": {}}', "format True"),
        ("[" * 100_000, "not JSON"),
        ('{"format": ' + "9" * 5000 + "}", "not JSON"),
        ('{"format": 1, "model": {"vocab_size": 23, "heads": 4}}', "heads is not a known key"),
        ("\udcff", "cannot be read"),
        ('{"format": 2, "format": 1, "model": {"vocab_size": 23}}', "the key 'format' comes twice"),
        ('{"format": 1.0, "model": {"vocab_size": 23}}', "format 1.0"),
        ('{"format": 1, "model": {"vocab_size": 23, "dropout": "0.1"}}', "dropout is '0.1'"),
        ('{"format": 1, "model": {"vocab_size": 23, "dropout": false}}', "dropout is False"),
        ('{"format": 1, "model": {"vocab_size": 23, "norm_eps": true}}', "norm_eps is True"),
        ('{"format": 1, "model": {"vocab_size": 23, "encoder_layers": 200000}}', "encoder_layers is 200000"),
        ('{"format": 1, "model": {"vocab_size": 23, "d_ff": 2147483647}}', "d_ff is 2147483647"),
        ('{"format": 1, "model": {"vocab_size": 23, "num_heads": 99999, "d_k": 99999}}', "99999 times d_k 99999"),
        ('{"format": 1, "model": {"vocab_size": 23, "position_offset": 2147483647}}', "position_offset is 2147483647"),
        ('{"format": 1, "model": {"vocab_size": "' + 1000 * "9" + '"}}', "(1,002 characters)"),
    ],
)
def test_a_foreign_or_broken_config(saved: Path, content: str, says: str) -> None:
    (saved / "config.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    check_refused(saved, says)


def test_weights_that_are_not_the_configurations(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    first, *rest = sorted(weights)
    save_file({name: weights[name] for name in rest}, saved / "model.safetensors")
    check_refused(saved, first, "missing from the weights")
    save_file({**weights, "stranger": torch.ones(1)}, saved / "model.safetensors")
    check_refused(saved, "stranger is in the weights")
    save_file({**weights, first: torch.ones(3, 3)}, saved / "model.safetensors")
    check_refused(saved, first, "(3, 3)")
    save_file({**weights, first: torch.ones(3, 3, dtype=torch.int8)}, saved / "model.safetensors")
    check_refused(saved, first, "torch.int8")


@pytest.mark.parametrize("changes", [dict(encoder_layers=100), dict(d_ff=2**24)])
def test_sizes_are_compared_before_there_is_room_for_them(saved: Path, changes: dict[str, int]) -> None:
    content = json.loads((saved / "config.json").read_text())
    content["model"] |= changes
    (saved / "config.json").write_text(json.dumps(content))
    check_refused(saved)


def test_weights_of_a_type_that_nothing_computes_with(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    first, *_ = sorted(weights)
    save_file({**weights, first: weights[first].to(torch.float8_e4m3fn)}, saved / "model.safetensors")
    check_refused(saved, first, "torch.float8_e4m3fn")


def test_a_header_that_promises_too_much(saved: Path) -> None:
    header = b'{"a":{"dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0]}}'
    (saved / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    check_refused(saved, "model.safetensors", "not a safetensors file")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_sparse_file_without_end(saved: Path, name: str) -> None:
    (saved / name).unlink()
    (saved / name).touch()
    os.truncate(saved / name, 2**40)
    check_refused(saved, name)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({f"key{number}": 0 for number in range(50_000)}, "has 50,000 keys where at most 100 are known"),
        ({"vocab_size": 23, "a\nb": 0}, "'a\\nb' is not a known key"),
        ({"vocab_size": 23, "x" * 1000: 0}, "(1,002 characters) is not a known key"),
        ({"vocab_size": 23, "d_ff": [[0] * 500_000]}, "is larger than 1 MB"),
        ({"vocab_size": 23, "d_ff": json.loads("[" * 40 + "]" * 40)}, "nests values more than 32 deep"),
        ({"vocab_size": 23, "position_offset": 65_535}, "position_offset is 65535"),
    ],
)
def test_a_config_that_is_too_much_to_tell_of(saved: Path, content: dict, says: str) -> None:
    (saved / "config.json").write_text(json.dumps({"format": 1, "model": content}))
    check_refused(saved, says)


def test_a_key_that_comes_twice_among_very_many(saved: Path) -> None:
    keys = ", ".join(f'"{number}": 0' for number in range(60_000))
    (saved / "config.json").write_text(f'{{"format": 1, "model": {{{keys}, "7": 1}}}}')
    began = time.process_time()
    check_refused(saved, "the key '7' comes twice")
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize("changes", [dict(encoder_layers=1000, decoder_layers=1000), dict(d_model=2**16, d_k=8, d_v=8)])
def test_a_large_model_is_not_built_before_its_weights_are_known_to_be_there(saved: Path, changes: dict) -> None:
    content = json.loads((saved / "config.json").read_text())
    content["model"] |= changes
    (saved / "config.json").write_text(json.dumps(content))
    began = time.process_time()
    check_refused(saved)
    assert time.process_time() - began < 2.0


def test_more_tensors_than_any_model_has(saved: Path) -> None:
    nothing = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({str(number): nothing for number in range(120_000)}).encode()
    (saved / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    check_refused(saved, "model.safetensors holds more than 100,000 tensors")


def test_a_header_without_end(saved: Path) -> None:
    (saved / "model.safetensors").write_bytes((50 << 20).to_bytes(8, "little") + b" " * 100)
    os.truncate(saved / "model.safetensors", 1 << 30)
    check_refused(saved, "model.safetensors is truncated or not a safetensors file", "52,428,800 bytes")


def test_a_name_that_would_not_fit_a_message(saved: Path) -> None:
    weights = load_file(saved / "model.safetensors")
    save_file({**weights, "two\nlines": torch.ones(1)}, saved / "model.safetensors")
    check_refused(saved, "'two\\nlines' is in the weights")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_what_reading_would_never_end_of(saved: Path, name: str) -> None:
    (saved / name).unlink()
    os.mkfifo(saved / name)
    check_refused(saved, name, "a device or a pipe")
