"""Self-attention on a few small matrices, computed by the library's own functions and kept step by step."""

from dataclasses import dataclass, replace
from zlib import crc32

import torch
from torch import Tensor

from regard.errors import InputError
from regard.ops import Causal, sinusoidal_positions
from regard.ops.attention import attention_scores, masked_softmax

EXAMPLE = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]], dtype=torch.float64)  # the worked example's X
LARGEST = 16  # rows or columns; beyond that a wall of numbers explains nothing


@dataclass(frozen=True)
class Step:
    """One line of the computation: what is called how, why, and what came out."""

    symbol: str
    equation: str
    meaning: str
    shape: str
    value: Tensor
    over_keys: bool = False
    """Whether columns are the positions attended to, rather than features."""


@dataclass(frozen=True)
class Explanation:
    """The tokens and every step from them to the output."""

    tokens: list[str]
    steps: list[Step]
    premise: str = ""
    """Where the numbers come from."""
    remark: str = ""
    """What is worth noticing about them."""


def worked_example() -> Explanation:
    """Run a worked example: three tokens of width 4, all projections the identity.

    >>> worked_example().steps[4].value  # the scores
    tensor([[1.0000, 0.0000, 0.5000],
            [0.0000, 1.0000, 0.5000],
            [0.5000, 0.5000, 1.0000]], dtype=torch.float64)
    """
    told = explain_matrices(EXAMPLE, tokens=["first", "second", "third"])
    remark = (
        "The note that this example is from (docs/notes.md) prints 0.5 everywhere off the diagonal. The first and the "
        "second token have no feature in common, so their product, and their score, is 0."
    )
    return replace(told, remark=remark)


def explain_sentence(
    sentence: str, *, d_model: int = 4, seed: int = 0, causal: bool = False, scale: float | None = None
) -> Explanation:
    """Attend over the words of a sentence, each with an embedding that its letters and the seed determine.

    Nothing is learned here: the numbers show the mechanism, not a meaning.
    """
    words = sentence.split()
    if not words:
        raise InputError("the sentence has no words to attend to")
    if not 1 <= d_model <= LARGEST:
        raise InputError(f"d_model is {d_model}; explain shows every number and takes 1 to {LARGEST}")
    if len(words) > LARGEST:
        raise InputError(f"the sentence has {len(words)} words; explain shows every number and takes at most {LARGEST}")
    X = torch.stack([_drawn(f"{seed} {word}", 1, d_model)[0] for word in words])
    P = sinusoidal_positions(len(words), d_model)
    W_Q, W_K, W_V = (_drawn(f"{seed} {name}", d_model, d_model) * d_model**-0.5 for name in ("W_Q", "W_K", "W_V"))
    before = [
        Step("X", "embedding of each token", "what the words are", "(T, D)", X),
        Step("P", "sin, cos(pos / 10000^(2i/d_model))", "where they stand", "(T, D)", P),
    ]
    told = explain_matrices(X + P, W_Q, W_K, W_V, tokens=words, causal=causal, scale=scale)
    sum_of_both = Step("H", "X + P", "the input of the first layer", "(T, D)", X + P)
    projections = [replace(step, equation=step.equation.replace("X", "H")) for step in told.steps[1:4]]
    premise = (
        f"The embeddings X and the matrices W_Q, W_K and W_V are random numbers, drawn from seed {seed}. "
        "Nothing is trained: the numbers show the mechanism, not the meaning of the words."
    )
    return Explanation(words, [*before, sum_of_both, *projections, *told.steps[4:]], premise)


def explain_matrices(
    X: Tensor,
    W_Q: Tensor | None = None,
    W_K: Tensor | None = None,
    W_V: Tensor | None = None,
    *,
    tokens: list[str] | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Explanation:
    """Attend over the rows of X with these projections, the identity where one is not given."""
    X = X.double()
    _check("X", X)
    T, D = X.shape
    tokens = [str(t + 1) for t in range(T)] if tokens is None else tokens
    projected = {}
    steps = [Step("X", "the input", "one row a token, one column a feature", "(T, D)", X)]
    for name, W, why in (
        ("Q", W_Q, "what a token looks for"),
        ("K", W_K, "what it is found by"),
        ("V", W_V, "what it gives"),
    ):
        W = torch.eye(D, dtype=torch.float64) if W is None else W.double()
        _check(f"W_{name}", W)
        if W.size(0) != D:
            raise InputError(f"W_{name} has {W.size(0)} rows; X is {D} wide, so W_{name} needs {D}")
        projected[name] = X @ W
        steps.append(Step(name, f"X × W_{name}", why, "(T, d_v)" if name == "V" else "(T, d_k)", projected[name]))
    Q, K, V = projected["Q"], projected["K"], projected["V"]
    if Q.size(1) != K.size(1):
        raise InputError(f"Q is {Q.size(1)} wide and K {K.size(1)}; W_Q and W_K need as many columns to be compared")

    d_k = Q.size(1)
    factor = d_k**-0.5 if scale is None else scale
    scaling = f"/ √{d_k}" if scale is None else f"· {scale:g}"
    scores = attention_scores(Q[None, None], K[None, None], factor)
    if not scores.isfinite().all():
        raise InputError(f"the scores, multiplied by {factor:g}, are not finite; smaller numbers are needed")
    weights = masked_softmax(scores, Causal() if causal else None)
    output = weights @ V[None, None]
    steps.append(
        Step("scores", f"Q × Kᵀ {scaling}", "how well each query meets each key", "(T, T)", scores[0, 0], True)
    )
    if causal:
        M = torch.zeros(T, T, dtype=torch.float64).masked_fill(~Causal().dense(T, T), -torch.inf)
        steps.append(Step("M", "0 or -∞", "no token looks ahead", "(T, T)", M, True))
    plus = " + M" if causal else ""
    steps.append(Step("weights", f"softmax(scores{plus})", "each row sums to 1", "(T, T)", weights[0, 0], True))
    steps.append(Step("output", "weights × V", "each token, a mix of the values", "(T, d_v)", output[0, 0]))
    identities = [f"W_{name}" for name, W in (("Q", W_Q), ("K", W_K), ("V", W_V)) if W is None]
    return Explanation(tokens, steps, _premise(identities))


def _premise(identities: list[str]) -> str:
    if not identities:
        return ""
    *others, last = identities
    if others:
        return f"{', '.join(others)} and {last} are the identity: what they are multiplied with stays as it is."
    return f"{last} is the identity: what it is multiplied with stays as it is."


def _check(name: str, matrix: Tensor) -> None:
    if matrix.dim() != 2 or not all(1 <= size <= LARGEST for size in matrix.shape):
        shape = " × ".join(str(size) for size in matrix.shape)
        raise InputError(f"{name} is {shape}; explain shows every number and takes 1 × 1 to {LARGEST} × {LARGEST}")
    if not matrix.isfinite().all():
        raise InputError(f"{name} holds a number that is not finite")


def _drawn(name: str, rows: int, columns: int) -> Tensor:
    generator = torch.Generator().manual_seed(crc32(name.encode("utf-8", "surrogateescape")))
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)
