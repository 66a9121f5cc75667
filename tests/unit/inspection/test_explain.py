import pytest
import torch

from regard import InputError
from regard.inspection import explain_matrices, explain_sentence, worked_example
from regard.ops import attention


def values(told: object) -> dict[str, torch.Tensor]:
    return {step.symbol: step.value for step in told.steps}  # type: ignore[attr-defined]


def test_the_third_notes_scores_are_put_right() -> None:
    told = worked_example()
    assert values(told)["scores"].tolist() == [[1, 0, 0.5], [0, 1, 0.5], [0.5, 0.5, 1]]
    assert "score, is 0" in told.remark


def test_what_is_told_is_what_attention_computes() -> None:
    X, W_Q, W_K, W_V = (torch.randn(shape, dtype=torch.float64) for shape in ((3, 4), (4, 2), (4, 2), (4, 5)))
    told = values(explain_matrices(X, W_Q, W_K, W_V, causal=True, scale=1.0))
    expected = attention(X @ W_Q, X @ W_K, X @ W_V, causal=True, scale=1.0)
    torch.testing.assert_close(told["output"], expected)
    assert told["M"].tolist()[0] == [0, -torch.inf, -torch.inf]


def test_equal_words_have_equal_embeddings_and_different_places() -> None:
    told = values(explain_sentence("the cat the dog"))
    assert told["X"][0].equal(told["X"][2])
    assert not told["H"][0].equal(told["H"][2])
    torch.testing.assert_close(told["weights"].sum(-1), torch.ones(4, dtype=torch.float64))


def test_what_cannot_be_shown_is_told() -> None:
    with pytest.raises(InputError, match="W_Q has 3 rows; X is 2 wide"):
        explain_matrices(torch.ones(2, 2), torch.ones(3, 3))
    with pytest.raises(InputError, match="Q is 2 wide and K 3"):
        explain_matrices(torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 3))
    with pytest.raises(InputError, match="17 × 1"):
        explain_matrices(torch.ones(17, 1))
    with pytest.raises(InputError, match="not finite"):
        explain_matrices(torch.tensor([[torch.nan]]))
    with pytest.raises(InputError, match="no words"):
        explain_sentence("  ")
    with pytest.raises(InputError, match="20 words"):
        explain_sentence("word " * 20)
    with pytest.raises(InputError, match="d_model is 0"):
        explain_sentence("a", d_model=0)
