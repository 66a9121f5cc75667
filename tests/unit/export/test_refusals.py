"""What cannot be exported is refused with the reason, and nothing is left behind."""

from pathlib import Path
from typing import Any

import pytest

from regard.errors import InputError
from regard.export import export
from regard.export.verification import Verification
from tests.unit.models import small_pipeline

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


def test_few_sentences_are_not_judged_by_bleu() -> None:
    """A word or two change it by more than is accepted; the likelihood of all tokens says more."""
    few: dict[str, Any] = dict(
        sentences=36, origin="", largest_difference=0.2, same=0.9, bleu=(30.0, 28.0), quantized=True
    )
    assert Verification(**few, rise=0.01).failure is None
    assert "0.2 higher" in str(Verification(**few, rise=0.2).failure)
    assert "0.2 higher" in str(Verification(**{**few, "bleu": None}, rise=0.2).failure)
