from pathlib import Path

import pytest

from regard.training import forecast as forecasting
from regard.training.examples import Batch
from regard.training.recipe import Run
from regard.training.train_step import TrainStep
from tests.unit.training.runs import SMALL


@pytest.mark.parametrize(("begin", "mean"), [(1, 2.0), (151, 1.25), (200, 1.005)])
def test_steps_of_two_passes_count_from_where_they_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: int, mean: float
) -> None:
    """A clock by which a pass takes a second, whatever the machine is doing; the steps are taken all the same."""
    step, seen = forecasting._timed, []

    def timed(train_step: TrainStep, batch: Batch, number: int) -> float:
        step(train_step, batch, number)
        seen.append(batch.tokens)
        return 2.0 if number >= begin else 1.0

    monkeypatch.setattr(forecasting, "_timed", timed)
    changes = ["training.steps=200", "training.r_drop=1.0", f"training.r_drop_from={begin}"]
    found = forecasting.forecast(Run.from_toml(SMALL, changes=changes, base=tmp_path))
    assert found.steps == 200
    assert found.tokens_per_second == pytest.approx(seen[-1] / mean)
