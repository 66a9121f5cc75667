"""What cannot be exported is refused with the reason, and nothing is left behind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from regard.errors import InputError
from regard.export import export
from regard.export.check_set import check_set
from regard.export.exporting import check_exportable
from regard.export.verification import Verification, verify
from tests.unit.models import small_model, small_pipeline

PAIRS = [("Tom sees it.", "Mary.")]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(d_k=8, d_v=12), "d_k 8 and d_v 12; CTranslate2's heads have one width"),
        (dict(final_norm=True), "norms after each sublayer and another at the end"),
        (dict(norm="rms", norm_placement="pre", embedding_norm=True), "RMS norm after its embeddings"),
    ],
)
def test_what_ctranslate2_cannot_represent(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        export(small_pipeline(**changes), tmp_path / "there", to="ctranslate2", pairs=PAIRS, language="de")
    assert not list(tmp_path.iterdir())


def test_what_there_is_nothing_to_check_with(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no sentences to check"):
        export(small_pipeline(), tmp_path / "there", to="onnx", pairs=[])
    with pytest.raises(InputError, match="already exists"):
        export(small_pipeline(), tmp_path, to="onnx", pairs=PAIRS)
    with pytest.raises(InputError, match="in floats"):
        export(small_pipeline(precision="int8"), tmp_path / "there", to="onnx", pairs=PAIRS)


def test_what_counts_as_a_failure() -> None:
    fine: dict[str, Any] = dict(
        sentences=1000, origin="", largest_difference=1e-5, rise=0.0, same=1.0, bleu=(30.0, 30.0), quantized=False
    )
    assert Verification(**fine).failure is None
    assert "differs by 0.01" in str(Verification(**{**fine, "largest_difference": 0.01}).failure)
    assert "99.00 % of sentences only" in str(Verification(**{**fine, "same": 0.99}).failure)
    rounded = {**fine, "quantized": True, "largest_difference": 0.2, "same": 0.9}
    assert Verification(**{**rounded, "bleu": (30.0, 29.8)}).failure is None
    assert "29.60 BLEU, the model's own 30.00" in str(Verification(**{**rounded, "bleu": (30.0, 29.6)}).failure)


@pytest.mark.parametrize("sentences", [36, 1000])
@pytest.mark.parametrize("quantized", [False, True])
def test_log_probabilities_that_are_not_numbers_are_a_failure(sentences: int, quantized: bool) -> None:
    fine: dict[str, Any] = dict(
        sentences=sentences, origin="", largest_difference=0.0, rise=0.0, same=1.0, bleu=(30.0, 30.0)
    )
    assert Verification(**fine, quantized=quantized).failure is None
    for name in ("largest_difference", "rise"):
        assert "not a number" in str(Verification(**{**fine, name: float("nan")}, quantized=quantized).failure)


class Broken:
    """A runtime that writes what the model writes, but has no log-probability of one token."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def greedy(self, sources: Sequence[list[int]], limits: Sequence[int], never: Sequence[int]) -> list[list[int]]:
        return [found[0].tokens for found in self._pipeline.decode(sources, beam=1)]

    def log_probabilities(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        logs: list[list[float]] = self._pipeline.token_log_probabilities(pairs)
        logs[1][0] = float("nan")
        return logs


def test_one_token_without_a_log_probability_is_a_failure() -> None:
    pipeline = small_pipeline()
    checked = check_set(pipeline, PAIRS * 2, language="de", directory=None)
    found = verify(Broken(pipeline), pipeline, checked, quantized=False)
    assert found.failure == "a token's log-probability is not a number"


def test_a_model_on_another_device_is_refused() -> None:
    with pytest.raises(InputError, match="exported from the CPU, and this one is on meta"):
        check_exportable(small_model()[0].to("meta"))


def test_few_sentences_are_not_judged_by_bleu() -> None:
    """A word or two change it by more than is accepted; the likelihood of all tokens says more."""
    few: dict[str, Any] = dict(
        sentences=36, origin="", largest_difference=0.2, same=0.9, bleu=(30.0, 28.0), quantized=True
    )
    assert Verification(**few, rise=0.01).failure is None
    assert "0.2 higher" in str(Verification(**few, rise=0.2).failure)
    assert "0.2 higher" in str(Verification(**{**few, "bleu": None}, rise=0.2).failure)
