"""What a judgement says."""

import math

from regard.training.validation import Judgement


def test_a_loss_beyond_all_numbers_has_a_perplexity() -> None:
    assert Judgement(0.0, None).perplexity == 1.0
    assert Judgement(1000.0, None).perplexity == math.inf
