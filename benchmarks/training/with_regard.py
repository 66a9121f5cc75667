"""regard's own step, as `regard train` takes it: by default, or with BENCH_FAST=1 by the settings that compute less."""

import os

from regard.memory import keep_memory

keep_memory()
os.environ["BENCH_SETTLED"] = "1"  # as it does by itself

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.training.measure import BETAS, CLIP, EPS, PAD, RATE, SMOOTHING, Size, Step, run  # noqa: E402
from regard.training import Run  # noqa: E402
from regard.training.examples import Batch  # noqa: E402
from regard.training.losses import losses_of  # noqa: E402
from regard.training.processes import Processes  # noqa: E402
from regard.training.train_step import TrainStep  # noqa: E402

FAST = {"precision": "int8", "softmax_gradient": "sampled"}


def make_step(size: Size) -> Step:
    """Build the model and its train_step from a run."""
    return make_train_step(size, FAST if os.environ.get("BENCH_FAST") == "1" else {})[1]


def make_train_step(size: Size, training: dict[str, str], **model: str) -> tuple[TrainStep, Step]:
    """Build the train_step of a run with these settings of training and of the model."""
    settings = Run.model_validate(
        {
            "data": {"train": [{"kind": "dates"}]},
            "model": {
                "d_model": size.d_model,
                "d_ff": size.d_ff,
                "num_heads": size.heads,
                "encoder_layers": size.layers,
                "decoder_layers": size.layers,
                "dropout": size.dropout,
                **model,
            },
            "optimizer": {"betas": BETAS, "eps": EPS, "clip": CLIP},
            "training": {"steps": 1, "label_smoothing": SMOOTHING, **training},
        }
    )
    config = settings.model_config_for(size.vocab, size.vocab)
    train_step = TrainStep(settings, config, Processes(), losses_of(settings.training))
    number = 0

    def step(source: Tensor, target: Tensor, labels: Tensor) -> None:
        nonlocal number
        number += 1
        batch = Batch(source, target, labels, torch.arange(len(source)), int((labels != PAD).sum()))
        train_step.step(RATE, number, train_step.gradients(number, [batch]))

    return train_step, step


if __name__ == "__main__":
    run(make_step)
