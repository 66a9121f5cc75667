"""Two processes do what one does, and a run survives the loss of one of them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.model.directory import read_model_directory
from regard.training.callbacks import read_metrics
from regard.training.checkpoints import step_directories
from tests.unit.training.runs import SMALL

_RUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]


def command(processes: int, directory: Path, out: str, *changes: str, restarts: int = 0) -> list[str]:
    launcher = [sys.executable] if processes == 1 else [*_RUN, str(processes), f"--max-restarts={restarts}"]
    if processes > 1:
        launcher += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    options = [part for change in changes for part in ("--set", change)]
    return [*launcher, "-m", "regard", "train", str(directory / "run.toml"), "--out", str(directory / out), *options]


def train(processes: int, directory: Path, out: str, *changes: str) -> list[dict[str, float]]:
    (directory / "run.toml").write_text(SMALL)
    done = subprocess.run(command(processes, directory, out, *changes), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line for line in read_metrics(directory / out / "metrics.jsonl") if line["kind"] == "steps"]


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path / "model.safetensors")


def test_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    """With sampling keyed by the example, this holds with dropout on and sampled gradients.

    In float64 there is nothing to hide.
    """
    exact = (
        *("training.precision=float64", "training.report_every=1", "training.steps=50", "training.accumulate=2"),
        "training.softmax_gradient=sampled",
    )
    whole = train(1, tmp_path, "one", *exact)
    for out, sharded in (("replicated", "false"), ("sharded", "true")):
        shared = train(2, tmp_path, out, *exact, f"training.sharded={sharded}")
        assert len(shared) == len(whole) == 50
        assert max(abs(a["loss"] - b["loss"]) for a, b in zip(whole, shared, strict=True)) <= 1e-9
        assert shared[0]["gradient_norm"] == pytest.approx(whole[0]["gradient_norm"], rel=1e-12)
        for name, tensor in weights(tmp_path / "one").items():
            torch.testing.assert_close(weights(tmp_path / out)[name], tensor, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("sharded", "sharing"),
    [
        ("true", ("model.sharing.kind=cycle-reversed", "model.sharing.embedding_width=8")),
        ("true", ("model.sharing.kind=all", "model.sharing.encoder_decoder=true", "model.sharing.act.cost=0.1")),
        ("false", ("model.sharing.kind=sequence", "model.sharing.encoder_decoder=true")),
    ],
)
def test_two_processes_train_shared_layers_as_one_does(tmp_path: Path, sharded: str, sharing: tuple[str, ...]) -> None:
    """A layer is applied several times; with encoder-decoder sharing, a parameter belongs to two layers."""
    changes = (*sharing, "model.encoder_layers=3", "model.decoder_layers=3", "training.precision=float64")
    changes = (*changes, "training.steps=4", "training.report_every=1", "averaging.kind=running")
    whole = train(1, tmp_path, "one", *changes)
    parts = train(2, tmp_path, "two", *changes, f"training.sharded={sharded}")
    assert parts[0]["gradient_norm"] == pytest.approx(whole[0]["gradient_norm"], rel=1e-12)
    for name, tensor in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "two")[name], tensor, rtol=0, atol=1e-9)


def test_a_table_that_all_layers_share_is_sharded_too(tmp_path: Path) -> None:
    exact = ("training.precision=float64", "training.report_every=1", "training.steps=6", "model.positions=t5")
    whole, parts = (
        train(count, tmp_path, f"{count}", *exact, "model.encoder_layers=2", "training.sharded=true")
        for count in (1, 2)
    )
    assert max(abs(a["loss"] - b["loss"]) for a, b in zip(whole, parts, strict=True)) <= 1e-9


def test_first_gradients_agree_in_single_precision(tmp_path: Path) -> None:
    """Adam's first moment after a step is a tenth of the gradient."""
    changes = ("training.steps=1", "checkpoints.every=1", "optimizer.clip=1e9")
    moments = []
    for processes, out in ((1, "one"), (2, "two")):
        train(processes, tmp_path, out, *changes)
        found = load_file(tmp_path / out / "checkpoints" / "step-0000001" / "moments-0-of-1.safetensors")
        moments.append(torch.cat([found[name].flatten() for name in sorted(found) if name.endswith("/exp_avg")]))
    assert (moments[1] - moments[0]).norm() <= 1e-6 * moments[0].norm()


def test_shared_weights_go_on_with_another_number_of_processes(tmp_path: Path) -> None:
    exact = ("training.precision=float64", "training.sharded=true", "averaging.kind=running")
    train(1, tmp_path, "whole", *exact)
    train(3, tmp_path, "parts", *exact, "training.steps=5")
    newest = step_directories(tmp_path / "parts" / "checkpoints")[-1]
    assert len(list(newest.glob("weights-*-of-3.safetensors"))) == 3
    train(2, tmp_path, "parts", *exact, "training.steps=9")
    train(1, tmp_path, "parts", *exact)
    for name, tensor in weights(tmp_path / "whole").items():
        torch.testing.assert_close(weights(tmp_path / "parts")[name], tensor, rtol=0, atol=1e-9)


_CHANGED = """
import sys
from pathlib import Path
from torch import Tensor
import regard
from regard.layers import DecoderLayer
from regard.training import Run

class Doubled(DecoderLayer):
    def forward(self, *args, **options) -> Tensor:
        return 2.0 * super().forward(*args, **options)

def build(config):
    model = regard.Transformer(config)
    model.decoder.layers[0].__class__ = Doubled
    return model

if __name__ == "__main__":
    run, out, *changes = sys.argv[1:]
    regard.train(Run.load(Path(run), changes), out, build=build)
"""


def test_a_changed_layer_is_trained_by_many_processes_and_named(tmp_path: Path) -> None:
    (tmp_path / "changed.py").write_text(_CHANGED)
    changes = ("training.precision=float64", "training.steps=6")
    train(1, tmp_path, "plain", *changes)
    for processes, out, sharded in ((1, "one", "false"), (2, "replicated", "false"), (2, "parts", "true")):
        line = command(processes, tmp_path, out)
        launcher = line[: line.index("-m", 3 if processes > 1 else 0)]
        arguments = [str(tmp_path / name) for name in ("changed.py", "run.toml", out)]
        done = subprocess.run(
            [*launcher, *arguments, *changes, f"training.sharded={sharded}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for path in (tmp_path / out, *step_directories(tmp_path / out / "snapshots")):
            assert read_model_directory(path).modules == ("__main__.Doubled",)
        for name, tensor in weights(tmp_path / "one").items():
            torch.testing.assert_close(weights(tmp_path / out)[name], tensor, rtol=0, atol=1e-9)
    plain = weights(tmp_path / "plain")
    assert not any(tensor.equal(plain[name]) for name, tensor in weights(tmp_path / "one").items() if tensor.dim() > 1)


@pytest.mark.parametrize("sharded", ["false", "true"])
def test_a_batch_of_fewer_rows_than_processes(tmp_path: Path, sharded: str) -> None:
    """Some processes have nothing to do, and still take part."""
    few = ("training.precision=float64", "training.batch_tokens=30", "training.steps=6")
    train(1, tmp_path, "one", *few)
    train(3, tmp_path, "three", *few, f"training.sharded={sharded}")
    for name, tensor in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "three")[name], tensor, rtol=0, atol=1e-9)


@pytest.mark.parametrize("sharded", ["false", "true"])
def test_a_lost_process_is_replaced_and_nothing_is_lost(tmp_path: Path, sharded: str) -> None:
    changes = (
        f"training.sharded={sharded}",
        "training.steps=60",
        "checkpoints.every=4",
        "training.subword_dropout=0.1",
    )
    train(2, tmp_path, "whole", *changes)
    running = subprocess.Popen(
        command(2, tmp_path, "cut", *changes, restarts=3), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    victim = _worker_after_a_checkpoint(running, tmp_path / "cut" / "checkpoints")
    os.kill(victim, signal.SIGKILL)
    _, said = running.communicate(timeout=300)
    assert running.returncode == 0, said
    assert "resumed at step" in said
    for name, tensor in weights(tmp_path / "whole").items():
        assert weights(tmp_path / "cut")[name].equal(tensor), name


def _worker_after_a_checkpoint(running: "subprocess.Popen[str]", checkpoints: Path) -> int:
    while not (checkpoints.exists() and step_directories(checkpoints)):
        assert running.poll() is None, "the run ended before a process could be killed"
        time.sleep(0.01)
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(running.pid)], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[-1])
