"""The model learns."""

import time
from pathlib import Path

import pytest
import torch

from examples import train_minimal
from examples.reverse import exact_match, learn
from regard import recipes, train
from regard.data import Dates
from regard.training import Run
from regard.training.evaluation import score_run


def test_reversing_a_sequence_is_learned_in_a_minute() -> None:
    started = time.process_time()  # of the processor: others may use it, too
    model = learn()
    assert exact_match(model) > 0.99
    assert time.process_time() - started < 60


@pytest.mark.slow
def test_dates_are_read_in_a_dozen_languages(tmp_path: Path) -> None:
    """The recipe that ships, on days that neither training nor validation has seen."""
    torch.set_num_threads(2)
    started = time.perf_counter()
    out = train(Run.load(recipes.path_of("dates"), [f"data.cache='{tmp_path}'"]), tmp_path / "dates")
    assert time.perf_counter() - started < 180
    unseen = Dates(part="test", count=2000)
    found = score_run(out, out, corpora=(unseen,), metrics=("exact",), beam=1)["exact"]
    torch.set_num_threads(1)
    assert found.value > 99.0


def test_the_minimal_training_program_learns_from_its_first_steps() -> None:
    losses, _ = train_minimal.main(steps=30)
    assert losses[0] == pytest.approx(7.7, abs=0.3)
    assert losses[-1] < 4.5


def test_the_minimal_training_program_takes_pairs_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{n} plus {n}\t{2 * n}\n" for n in range(200)), encoding="utf-8")
    losses, exact = train_minimal.main(path, steps=2)
    assert len(losses) == 2
    assert 0.0 <= exact <= 1.0


@pytest.mark.slow
def test_the_minimal_training_program_reads_dates() -> None:
    losses, exact = train_minimal.main()
    assert losses[-1] < 1.05
    assert exact > 0.98
