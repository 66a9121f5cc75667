"""What a result says."""

import math

from regard.training.validation import ValidationResult


def test_a_loss_beyond_all_numbers_has_a_perplexity() -> None:
    assert ValidationResult(0.0, None).perplexity == 1.0
    assert ValidationResult(1000.0, None).perplexity == math.inf
