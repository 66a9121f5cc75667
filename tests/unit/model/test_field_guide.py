"""Every line of configuration in the field guide makes a model."""

import re
import tomllib
from pathlib import Path

import pytest
import torch

from regard import Transformer, TransformerConfig
from regard.model.variations import ABSOLUTE, KINDS, PATTERNS, RELATIVE

GUIDE = Path(__file__).parents[3] / "docs" / "variations.md"
LINES = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_there_is_a_line_for_every_variation() -> None:
    named = set(re.findall(r'"([\w-]+)"', "".join(LINES)))
    assert {*ABSOLUTE, *RELATIVE, *PATTERNS, *KINDS, "all", "cycle-reversed"} <= named


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_configuration_makes_a_model_that_runs(line: str) -> None:
    shape = dict(vocab_size=30, d_model=16, num_heads=4, d_ff=16, encoder_layers=3, decoder_layers=3)
    model = Transformer(TransformerConfig(**{**shape, **tomllib.loads(line)["model"]})).eval()
    source, target = torch.randint(3, 30, (2, 9)), torch.randint(3, 30, (2, 7))
    assert model(source, target).isfinite().all()
