import subprocess
import sys
from collections.abc import Sequence
from typing import Any, get_args

import pytest

from regard.errors import InputError
from regard.tasks import MeanMetric, MetricName, Score, register, score
from regard.tasks.metrics import METRICS, Metric, find_metric


def test_every_name_has_its_metric() -> None:
    assert list(METRICS) == list(get_args(MetricName))
    for name, metric in METRICS.items():
        assert metric.name == name
        assert isinstance(metric, Metric)
        perfect = score(name, ["word one two three"] * 3, ["word one two three"] * 3)
        assert perfect.value == pytest.approx(100.0)
        assert perfect.name.lower().startswith(name.lower())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rogue1", "the metric 'rogue1' is not known; did you mean rouge1?"),
        ("BLEU", "the metric 'BLEU' is not known; did you mean bleu?"),
        ("rougel", "the metric 'rougel' is not known; did you mean rougeL?"),
        ("quality", "the metric 'quality' is not known; it is one of bleu, chrf, exact, rouge1, "),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        score(name, ["a"], ["a"])
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("texts", "references", "message"),
    [
        (["a", "b"], ["a"], "2 texts cannot be scored against 1"),
        ([], [], "0 texts"),
        ("a", ["a"], "one of them is a string"),
        (["a"], "a", "one of them is a string"),
        (["a", None], ["a", "b"], "text 2 is None; expected a string"),
        (["a", "b"], ["a", None], "the reference of text 2 is None; expected a string or strings"),
        (["a"], [["a", 3]], "the reference of text 1 is .*; expected a string or strings"),
        (["a", "b"], ["a", []], "text 2 has no reference; an unanswerable question has the empty one"),
    ],
)
def test_texts_and_references_belong_together(texts: Any, references: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        score("exact", texts, references)


def test_a_negative_number_of_samples_is_refused() -> None:
    with pytest.raises(InputError, match="bootstrap is -1"):
        score("exact", ["a"], ["a"], bootstrap=-1)


def same_length(texts: Sequence[str], references: Sequence[tuple[str, ...]]) -> float:
    same = [len(text) in map(len, some) for text, some in zip(texts, references, strict=True)]
    return 100 * sum(same) / len(same)


def test_a_function_is_a_metric() -> None:
    found = score(same_length, ["abc", "de"] * 20, ["xyz", ["f", ""]] * 20, bootstrap=100)
    assert (found.name, found.value) == ("same_length", 50.0)
    assert found.interval is not None
    assert found.interval[0] < 50.0 < found.interval[1]
    assert found.signature == "same_length|bs:100|seed:12345"


def test_an_object_with_a_name_and_a_score_is_a_metric() -> None:
    class Longest:
        name = "longest"

        def score(self, texts: Sequence[str], references: Sequence[tuple[str, ...]], *, bootstrap: int = 0) -> Score:
            return Score(float(max(map(len, texts))), self.name, "longest = many", None)

    assert score(Longest(), ["abc"], ["x"]).value == 3.0


def test_a_registered_metric_is_known_by_its_name() -> None:
    own = register(MeanMetric("starts_alike", lambda text, some: float(text[:1] in {one[:1] for one in some})))
    assert find_metric("starts_alike") is own
    assert score("starts_alike", ["ab", "c"], ["ax", "d"]).value == 50.0
    with pytest.raises(InputError, match="did you mean starts_alike"):
        score("start_alike", ["a"], ["a"])


def test_the_name_of_a_metric_of_the_package_is_taken() -> None:
    with pytest.raises(InputError, match="the metric exact comes with the package"):
        register(MeanMetric("exact", lambda text, some: 1.0))


def test_a_function_that_returns_no_number_is_refused() -> None:
    def broken(texts: Sequence[str], references: Sequence[tuple[str, ...]]) -> Any:
        return None

    with pytest.raises(InputError, match="the metric broken returned None; expected a number"):
        score(broken, ["a"], ["a"])


def test_scorers_are_imported_when_they_are_used() -> None:
    code = "import sys, regard.tasks; print({'sacrebleu', 'rouge_score', 'nltk'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
