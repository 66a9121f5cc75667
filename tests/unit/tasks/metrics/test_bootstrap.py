import numpy as np
import pytest

from regard.tasks import score
from tests.unit.tasks.metrics.pairs import random_pairs

WITH_OWN_BOOTSTRAP = [
    *("exact", "rouge1", "rouge2", "rougeL", "squad_exact", "squad_f1"),
    *("accuracy", "macro_f1", "code_bleu4", "code_exact"),
]


@pytest.mark.parametrize("metric", WITH_OWN_BOOTSTRAP)
def test_intervals_are_the_same_each_time_and_contain_the_value(metric: str) -> None:
    if metric in ("accuracy", "macro_f1"):
        texts = ["a", "b", "a", "c"] * 50
        references: list[tuple[str, ...]] = [("a",), ("b",), ("b",), ("c",)] * 50
    else:
        texts, references = random_pairs(200)
    found = score(metric, texts, references, bootstrap=200)
    assert found == score(metric, texts, references, bootstrap=200)
    assert found.interval is not None
    low, high = found.interval
    assert low < found.value < high
    assert f"(95 % interval: {low:.2f} to {high:.2f})" in found.text
    assert found.signature.endswith("|bs:200|seed:12345")
    assert found.name == metric
    plain = score(metric, texts, references)
    assert (plain.value, plain.interval) == (found.value, None)


def test_an_interval_is_as_wide_as_the_normal_approximation_says() -> None:
    texts, references = ["a", "b"] * 500, ["a", "x"] * 500
    found = score("exact", texts, references, bootstrap=2000)
    assert found.interval is not None
    half = 100 * 1.96 * np.sqrt(0.5 * 0.5 / 1000)
    assert found.interval == pytest.approx((50 - half, 50 + half), abs=0.4)


@pytest.mark.parametrize("metric", ["squad_f1", "code_bleu4", "macro_f1", "rougeL"])
def test_a_sample_scores_as_its_examples_do(metric: str) -> None:
    """The interval from weighted statistics is that from scoring each sample's texts."""
    texts, references = random_pairs(30)

    def whole(some: list[str], of: list[tuple[str, ...]]) -> float:
        return score(metric, some, of).value

    slow = score(whole, texts, references, bootstrap=20)  # type: ignore[arg-type]
    fast = score(metric, texts, references, bootstrap=20)
    assert slow.interval == pytest.approx(fast.interval, rel=1e-9)


def test_one_example_has_an_interval_of_no_width() -> None:
    assert score("exact", ["a"], ["a"], bootstrap=10).interval == (100.0, 100.0)
    assert score("exact", ["a"], ["a"], bootstrap=1).interval is None
