from pathlib import Path

import numpy as np

from regard.inspection import draw_pattern
from regard.layers.patterns import Longformer


def test_a_pattern_is_drawn_for_an_encoder_and_for_a_decoder(tmp_path: Path) -> None:
    pattern = Longformer(2, global_tokens=1)
    figure = draw_pattern(pattern, tmp_path / "pattern.png", length=12)
    encoder, decoder = (np.asarray(axes.images[0].get_array()) for axes in figure.axes)
    assert (encoder == pattern.dense(12).numpy()).all()
    assert (decoder == np.tril(encoder)).all()
    assert (tmp_path / "pattern.png").read_bytes().startswith(b"\x89PNG")
