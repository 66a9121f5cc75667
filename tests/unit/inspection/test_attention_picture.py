import subprocess
import sys
from pathlib import Path

import pytest

import regard
from tests.unit.models import small_pipeline

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("kind", [str, Path])
def test_a_picture_is_written_and_its_figure_returned(kind: type, tmp_path: Path) -> None:
    record = small_pipeline().attention("Tom sees it.", "Mary likes it.", to="de")
    figure = regard.inspection.draw_attention(record, kind(tmp_path / "weights.png"))
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["Mary", "likes", "it.", "</s>"]


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = small_pipeline().attention("Tom sees it.", "Mary.", to="de")
    figure = regard.inspection.draw_attention(record)
    assert figure.axes
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_picture_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    record = small_pipeline().attention("Tom sees it.", "Mary.", to="de")
    with pytest.raises(regard.InputError, match=r"weights.txt .* \.png, \.svg, \.pdf"):
        regard.inspection.draw_attention(record, str(tmp_path / "weights.txt"))


def test_drawing_leaves_matplotlibs_backend_alone() -> None:
    """A notebook chooses its own backend; a picture must not take it away."""
    script = """
import matplotlib, regard
matplotlib.use("svg")
record = regard.load("de-en").attention("Ja.", "Yes.", to="en")
regard.inspection.draw_attention(record)
print(matplotlib.get_backend())
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "svg\n"
