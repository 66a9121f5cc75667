"""What is exported computes there what it computes here, for every configuration that can be said there."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import ModelError
from regard.export import export
from regard.export.exporting import Quantization, Runtime
from tests.unit.export.test_check_set import untagged_pipeline
from tests.unit.models import SENTENCES, small_pipeline

pytestmark = pytest.mark.slow

PAIRS = [(sentence, SENTENCES[-number]) for number, sentence in enumerate(SENTENCES[::2])]
CONFIGS: list[dict[str, Any]] = [
    {},
    dict(norm_placement="pre", embedding_scale=False),
    dict(norm_placement="pre", norm="rms", activation="swiglu", num_kv_heads=2, bias=False),
    # Without the scale: else its log-probabilities go down to -90, and its own floats differ from doubles by 1e-4.
    dict(norm_placement="pre", final_norm=False, activation="gelu_tanh", embedding_scale=False),
    dict(activation="gelu", positions="learned", max_positions=128, position_offset=2, embedding_norm=True),
    dict(activation="geglu", positions="none", output_bias=True),
    dict(activation="silu", position_layout="halves", shared_embeddings="none", d_k=16, d_v=16, norm_eps=1e-3),
    dict(encoder_layers=3, decoder_layers=3, sharing={"kind": "cycle-reversed", "layers": 2, "embedding_width": 12}),
    dict(sharing={"kind": "all", "encoder_decoder": True}),
]


@pytest.fixture(params=["ctranslate2", "onnx"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    pytest.importorskip({"ctranslate2": "ctranslate2", "onnx": "onnxscript"}[request.param], reason="not installed")
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("changes", CONFIGS, ids=str)
def test_an_export_is_the_model(runtime: Runtime, changes: dict[str, Any], tmp_path: Path) -> None:
    pipeline = small_pipeline(**changes)
    found = export(pipeline, tmp_path / "there", to=runtime, pairs=PAIRS, language="de")
    assert found.failure is None
    assert found.largest_difference < 1e-4
    assert found.same == 1.0
    assert "log-probabilities" in (tmp_path / "there" / "README.md").read_text()


def test_bytes_come_close(runtime: Runtime, tmp_path: Path) -> None:
    quantize: Quantization = "int8"
    found = export(small_pipeline(), tmp_path / "there", to=runtime, quantize=quantize, pairs=PAIRS, language="de")
    assert 1e-4 < found.largest_difference < 3.0
    files = [path for path in (tmp_path / "there").iterdir() if path.suffix in (".bin", ".onnx")]
    export(small_pipeline(), tmp_path / "whole", to=runtime, pairs=PAIRS, language="de")
    for path in files:
        assert path.stat().st_size < (tmp_path / "whole" / path.name).stat().st_size


def test_heads_of_two_widths_go_to_onnx_alone(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="not installed")
    pipeline = small_pipeline(d_k=8, d_v=12)
    assert export(pipeline, tmp_path / "there", to="onnx", pairs=PAIRS, language="de").failure is None


def test_an_export_that_is_wrong_is_not_written(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = small_pipeline()
    right = type(pipeline).token_log_probabilities
    monkeypatch.setattr(
        type(pipeline), "token_log_probabilities", lambda *given: [[x + 1e-3 for x in row] for row in right(*given)]
    )
    with pytest.raises(ModelError, match="log-probability differs by 0.001"):
        export(pipeline, tmp_path / "there", to=runtime, pairs=PAIRS, language="de")
    assert not list(tmp_path.iterdir())


def run_readme(directory: Path) -> str:
    """Run the program in the README of an export, where it is."""
    (program,) = re.findall(r"```python\n(.*?)```", (directory / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_the_program_in_the_readme_translates(runtime: Runtime, quantize: Quantization | None, tmp_path: Path) -> None:
    pipeline = regard.load("de-en", precision="float")
    found = export(pipeline, tmp_path / "there", to=runtime, quantize=quantize, language="en")
    assert "built-in sentences" in found.text
    assert run_readme(tmp_path / "there") in ("I'm hungry.\n", "I am hungry.\n")


def test_no_data_is_needed_for_a_model_without_languages(runtime: Runtime, tmp_path: Path) -> None:
    pipeline = untagged_pipeline(positions="learned", max_positions=24)
    found = export(pipeline, tmp_path / "there", to=runtime)
    assert "random token sequences" in found.text
    run_readme(tmp_path / "there")


def test_the_readme_names_every_input_and_output(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="not installed")
    pytest.importorskip("onnxscript", reason="not installed")
    export(small_pipeline(d_k=8, d_v=12), tmp_path / "there", to="onnx", pairs=PAIRS, language="de")
    readme = (tmp_path / "there" / "README.md").read_text(encoding="utf-8")
    for graph in ("encoder", "decoder"):
        session = onnxruntime.InferenceSession(tmp_path / "there" / f"{graph}.onnx")
        rows = [line for line in readme.splitlines() if line.startswith(f"| {graph} ")]
        for value in (*session.get_inputs(), *session.get_outputs()):
            assert any(f"`{value.name}`" in row for row in rows), value.name


def test_the_command_line_checks_on_the_test_set_of_the_model(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="not installed")
    command = [sys.executable, "-m", "regard", "export", "de-en", "--to", "ctranslate2", "-o", str(tmp_path / "there")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "On 1,000 sentences of the model's test set" in result.stdout.replace("\n", " ")
    assert run_readme(tmp_path / "there") == "I'm hungry.\n"
