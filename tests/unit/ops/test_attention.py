"""Every path of attention against a float64 reference, forward and backward."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard.errors import InputError
from regard.ops import Causal, KeyLengths, Mask, fused_attention, reference_attention
from regard.ops.attention import attention_scores, centered_bias, open_empty_rows
from regard.ops.masks import as_mask, fitted_mask
from tests.reference import looped_attention

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}

Leaves = tuple[Tensor, Tensor, Tensor]


@dataclass
class Case:
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Mask | Tensor | None
    causal: bool
    bias: Tensor | None
    scale: float | None

    @property
    def described(self) -> Mask | None:
        B, H, T, _ = self.query.shape
        mask = (
            None
            if self.mask is None
            else fitted_mask(as_mask(self.mask), (B, H, T, self.key.size(2)), 4, self.key.device)
        )
        if not self.causal:
            return mask
        return Causal() if mask is None else mask & Causal()

    @property
    def M(self) -> Mask | Tensor | None:
        """What is added to the scores, by both paths."""
        if self.bias is None:
            return self.described
        described, wide = self.described, torch.promote_types(self.query.dtype, torch.float32)
        allowed = None if described is None else described.dense(self.query.size(2), self.key.size(2))
        return centered_bias(self.bias.reshape((1,) * (4 - self.bias.dim()) + self.bias.shape), allowed, wide)

    def reference(self) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Output, weights and gradients in float64."""
        T, S = self.query.size(2), self.key.size(2)
        query, key, value = (x.detach().double().requires_grad_() for x in (self.query, self.key, self.value))
        allowed = torch.ones(1, 1, T, S, dtype=torch.bool)
        if self.described is not None:
            allowed = allowed & self.described.dense(T, S)
        bias = torch.zeros(1, 1, T, S) if self.bias is None else self.bias
        scale = self.query.size(-1) ** -0.5 if self.scale is None else self.scale
        output, weights = looped_attention(query, key, value, allowed, bias.double(), scale)
        return output.detach(), weights.detach(), self.gradients(output, (query, key, value))

    def gradients(self, output: Tensor, leaves: Leaves) -> tuple[Tensor, ...]:
        direction = torch.linspace(-1, 1, output.numel()).reshape(output.shape).to(output.dtype)
        loss = (output * direction).sum() + sum(leaf.sum() * 0 for leaf in leaves)
        return torch.autograd.grad(loss, leaves)


@st.composite
def cases(draw: st.DrawFn, dtype: torch.dtype = torch.float32) -> Case:
    B, T, S = (draw(st.integers(0, 3)), draw(st.integers(0, 6)), draw(st.integers(0, 6)))
    G, per_group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    H, K, V = G * per_group, draw(st.integers(1, 5)), draw(st.integers(1, 5))
    if draw(st.booleans()):
        S = T  # where the causal mask has a kernel of its own
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def normal(*shape: int) -> Tensor:
        return (2 * torch.randn(*shape, generator=generator)).to(dtype).requires_grad_()

    def coins(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator) < draw(st.sampled_from([0.0, 0.3, 0.8]))

    lengths = torch.randint(0, S + 1, (B,), generator=generator)
    mask: Mask | Tensor | None = draw(
        st.sampled_from(
            [
                None,
                coins(T, S),
                coins(B, 1, 1, S),
                coins(B, 1, T, S),
                coins(1, H, T, S),
                coins(B, H, T, S),
                KeyLengths(lengths),
                Causal(lengths),
                Causal() & coins(B, 1, 1, S),
                KeyLengths(lengths) | coins(T, S),
                coins(T, S) & KeyLengths(lengths),
            ]
        )
    )
    bias = None
    if draw(st.booleans()):
        bias = torch.randn(*draw(st.sampled_from([(T, S), (1, H, T, S), (B, 1, T, S)])), generator=generator)
        bias = bias.masked_fill(coins(*bias.shape), -math.inf).to(dtype)
    return Case(
        normal(B, H, T, K),
        normal(B, G, S, K),
        normal(B, G, S, V),
        mask,
        draw(st.booleans()),
        bias,
        draw(st.sampled_from([None, 1.0, 0.3, 0.0, -0.7])),
    )


def check_close(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert not actual.isnan().any()
    assert actual.shape == expected.shape
    largest = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
    assert (actual.double() - expected).abs().le(TOLERANCE[dtype] * largest).all()


def check_case(case: Case, dtype: torch.dtype) -> None:
    expected, expected_weights, expected_gradients = case.reference()
    leaves = (case.query, case.key, case.value)
    scale = case.query.size(-1) ** -0.5 if case.scale is None else case.scale
    options: dict[str, Any] = dict(causal=case.causal, bias=case.bias, scale=case.scale)
    with_weights, weights = regard.attention(*leaves, case.mask, **options, return_weights=True)
    for output in (
        regard.attention(*leaves, case.mask, **options),
        with_weights,
        reference_attention(*leaves, case.M, scale, 0.0)[0],
        fused_attention(*leaves, case.M, scale, 0.0),
    ):
        check_close(output, expected, dtype)
        gradients = case.gradients(output, leaves)
        for actual, wanted in zip(gradients, expected_gradients, strict=True):
            check_close(actual, wanted, dtype)
        saw_nothing = expected_weights.sum(-1) == 0
        assert (output[saw_nothing] == 0).all()
        assert (gradients[0][saw_nothing] == 0).all()
    check_close(weights, expected_weights, dtype)


@given(cases(dtype=torch.float32))
def test_every_path_gives_the_reference_in_float32(case: Case) -> None:
    check_case(case, torch.float32)


@given(cases(dtype=torch.float64))
def test_every_path_gives_the_reference_in_float64(case: Case) -> None:
    check_case(case, torch.float64)


@given(cases(dtype=torch.bfloat16))
def test_every_path_gives_the_reference_in_bfloat16(case: Case) -> None:
    check_case(case, torch.bfloat16)


@given(cases(dtype=torch.float16))
def test_every_path_gives_the_reference_in_float16(case: Case) -> None:
    check_case(case, torch.float16)


def test_scores_beyond_half_precision_stay_finite_on_every_path() -> None:
    query, key, value = (100 * torch.randn(3, 1, 1, 8, 64)).half().unbind()
    output, _ = regard.attention(query, key, value, return_weights=True)
    torch.testing.assert_close(output, regard.attention(query, key, value), atol=0.2, rtol=1e-2)


@pytest.mark.parametrize("length", [130, 600, 1100])
def test_fully_masked_blocks_of_long_sequences_stay_finite(length: int) -> None:
    """The fused kernel works in blocks; rows and whole blocks that see nothing must not leak NaN into others."""
    query, key, value = leaves = torch.randn(3, 2, 2, length, 8).requires_grad_().unbind()
    mask = torch.ones(2, 1, length, length, dtype=torch.bool)
    mask[0, :, length // 3 : length // 2] = False
    mask[1, :, :, : length - 5] = False
    fused = regard.attention(query, key, value, mask, causal=True)
    reference, _ = regard.attention(query, key, value, mask, causal=True, return_weights=True)
    torch.testing.assert_close(fused, reference, atol=1e-5, rtol=0)
    fused_gradients = torch.autograd.grad(fused.square().sum(), leaves)
    reference_gradients = torch.autograd.grad(reference.square().sum(), leaves)
    for actual, expected in zip(fused_gradients, reference_gradients, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    assert (fused[0, :, length // 3 : length // 2] == 0).all()


def test_a_worked_example_has_the_right_scores() -> None:
    X = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]])
    _, weights = regard.attention(X, X, X, return_weights=True)
    scores = torch.tensor([[1, 0, 0.5], [0, 1, 0.5], [0.5, 0.5, 1]])
    torch.testing.assert_close(weights, scores.softmax(-1))


def test_ranks_two_and_three_are_rank_four_with_one_head() -> None:
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    mask = torch.rand(2, 3, 5) > 0.3
    expected = regard.attention(q[:, None], k[:, None], v[:, None], mask[:, None])[:, 0]
    torch.testing.assert_close(regard.attention(q, k, v, mask), expected)
    torch.testing.assert_close(regard.attention(q[0], k[0], v[0], mask[0]), expected[0])


def test_a_padding_mask_fits_queries_with_and_without_heads() -> None:
    tokens = torch.tensor([[5, 6, 7, 0], [5, 0, 0, 0]])
    q, k, v = (torch.randn(2, 4, 8) for _ in range(3))
    mask = regard.padding_mask(tokens, 0)
    expected = regard.attention(q[1], k[1, :1], v[1, :1])
    torch.testing.assert_close(regard.attention(q, k, v, mask)[1], expected)


def test_dropout_keeps_the_mean_and_leaves_the_returned_weights_whole() -> None:
    q, k, v = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 6, 8), torch.ones(1, 1, 6, 3)
    outputs = torch.stack([regard.attention(q, k, v, dropout=0.5) for _ in range(2000)])
    assert (outputs.mean(0) - 1).abs().max() < 0.05
    assert outputs.std() > 0.1
    _, weights = regard.attention(q, k, v, dropout=0.5, return_weights=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 4))


def test_rows_that_see_nothing_are_opened_and_named() -> None:
    allowed = torch.tensor([[True, False], [False, False]])
    opened, nothing = open_empty_rows(allowed, torch.float32)
    assert opened.tolist() == [[True, False], [True, True]]
    assert nothing.tolist() == [[False], [True]]
    additive = torch.zeros(2, 2).masked_fill(~allowed, -math.inf)
    opened, nothing = open_empty_rows(additive, torch.bfloat16)
    assert opened.dtype == torch.bfloat16
    assert opened.tolist() == [[0.0, -math.inf], [0.0, 0.0]]
    assert nothing.tolist() == [[False], [True]]


def test_gradients_of_gradients_on_the_reference_path() -> None:
    leaves = tuple(torch.randn(1, 1, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    assert torch.autograd.gradgradcheck(lambda q, k, v: regard.attention(q, k, v, mask, return_weights=True), leaves)


T4 = (2, 3, 5, 4)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (dict(query=(5,)), r"\(5,\)"),
        (dict(query=(2, 3, 5, 6)), "6 wide and keys 4"),
        (dict(value=(2, 3, 6, 4)), r"key \(2, 3, 5, 4\), value \(2, 3, 6, 4\)"),
        (dict(query=(1, 3, 5, 4)), "queries have 1 rows and keys 2"),
        (dict(query=(2, 4, 5, 4)), "4 query heads cannot share 3"),
        (dict(mask=torch.zeros(5, 5)), "bias="),
        (dict(mask=torch.ones(5, 5, dtype=torch.int64)), r"torch.int64; pass mask.bool\(\)"),
        (dict(mask=torch.ones(5, 4, dtype=torch.bool)), r"\(5, 4\) does not broadcast to .* \(2, 3, 5, 5\)"),
        (dict(mask=Causal() & torch.ones(7, dtype=torch.bool)), r"\(7,\) does not broadcast"),
        (dict(mask=KeyLengths(torch.tensor([1, 2, 3]))), r"shape \(3,\); the batch has 2 rows"),
        (dict(mask=[True]), "got list"),
        (dict(bias=torch.ones(5, 5, dtype=torch.bool)), "torch.bool; pass a boolean mask as mask="),
        (dict(bias=torch.ones(3, 5)), r"bias of shape \(3, 5\)"),
        (dict(dropout=1.0), "dropout is 1.0"),
        (dict(scale=math.nan), "scale is nan"),
        (dict(mask=torch.ones(5, 5, dtype=torch.bool, device="meta")), "mask is on meta, and the query on cpu"),
        (dict(mask=KeyLengths(torch.ones(2, dtype=torch.int64, device="meta"))), "KeyLengths is on meta"),
        (dict(mask=KeyLengths(torch.ones(2))), "KeyLengths counts positions, and was given torch.float32"),
        (dict(bias=torch.ones(5, 5, device="meta")), "bias is on meta"),
    ],
)
def test_bad_input_is_told_by_what_it_is(arguments: dict[str, Any], says: str) -> None:
    shapes = {name: arguments.pop(name, T4) for name in ("query", "key", "value")}
    tensors: dict[str, Any] = {name: torch.randn(shape) for name, shape in shapes.items()}
    with pytest.raises(InputError, match=says):
        regard.attention(**tensors, **arguments)


def test_types_that_differ_are_told() -> None:
    x = torch.randn(2, 3)
    with pytest.raises(InputError, match="torch.float64"):
        regard.attention(x.double(), x, x)
    with pytest.raises(InputError, match="torch.int64"):
        regard.attention(x.long(), x.long(), x.long())
    with pytest.raises(InputError, match="one device, not cpu, meta and cpu"):
        regard.attention(x, x.to("meta"), x)


# The fused kernel adds -∞ to ∞; the reference path and the kernel for short sequences do not.
def test_a_hidden_score_may_be_infinite_on_the_reference_path() -> None:
    big = torch.full((1, 1, 8, 8), 1e20, requires_grad=True)
    nothing = torch.zeros(1, 1, 1, 8, dtype=torch.bool)
    output, _ = regard.attention(big, big, big, nothing, return_weights=True)
    assert output.eq(0.0).all()
    (gradient,) = torch.autograd.grad(output.sum(), big)
    assert gradient.eq(0.0).all()


def test_a_hidden_key_changes_nothing_on_the_reference_path_whatever_it_is() -> None:
    x = torch.ones(1, 1, 3, 8)
    loud = x.clone()
    loud[..., 2, :] = 1e38
    mask = torch.tensor([True, True, False])[None, None, None]
    output, _ = regard.attention(x, loud, x, mask, return_weights=True)
    assert output.equal(torch.ones_like(x))


@st.composite
def extreme_biases(draw: st.DrawFn) -> Case:
    """Biases that swallow any score added to them, over whole rows, parts of rows, or everything a mask leaves."""
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]))
    bias_dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]))
    T, S = draw(st.sampled_from([(1, 5), (4, 4), (3, 17), (70, 70)]))
    B, H = (2, 2) if T < 70 else (1, 1)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    least = torch.finfo(bias_dtype).min
    values = torch.tensor([0.0, -1.0, -1e4, least / 2, least, -least, -math.inf], dtype=torch.float64)

    def chosen(*shape: int) -> Tensor:
        return values[torch.randint(len(values), shape, generator=generator)]

    bias = draw(
        st.sampled_from([chosen(T, 1).expand(T, S), chosen(B, 1, T, 1), chosen(T, S), chosen(1, H, 1, S)]),
    ).to(bias_dtype)
    query, key, value = (
        (torch.randn(B, H, n, 8, generator=generator) * 2).to(dtype).requires_grad_() for n in (T, S, S)
    )
    mask = draw(st.sampled_from([None, torch.rand(B, 1, T, S, generator=generator) < 0.5]))
    return Case(query, key, value, mask, draw(st.booleans()) and T == S, bias, None)


@given(extreme_biases())
def test_a_finite_bias_of_any_size_is_a_softmax_on_every_path(case: Case) -> None:
    check_case(case, case.query.dtype)


@pytest.mark.parametrize("length", [4, 80])
@pytest.mark.parametrize("bias_dtype", [torch.float32, torch.float64])
def test_a_constant_finite_bias_is_no_bias(length: int, bias_dtype: torch.dtype) -> None:
    leaves = torch.randn(3, 1, 2, length, 8).requires_grad_().unbind()
    expected = regard.attention(*leaves)
    expected_gradients = torch.autograd.grad(expected.square().sum(), leaves)
    for constant in (-1e9, torch.finfo(bias_dtype).min, torch.finfo(bias_dtype).max):
        bias = torch.full((length, length), constant, dtype=bias_dtype)
        for output in (
            regard.attention(*leaves, bias=bias),
            regard.attention(*leaves, bias=bias, return_weights=True)[0],
        ):
            torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
            gradients = torch.autograd.grad(output.square().sum(), leaves)
            torch.testing.assert_close(gradients, expected_gradients, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_learned_bias_has_the_same_gradient_on_every_path(dtype: torch.dtype) -> None:
    query, key, value = torch.randn(3, 2, 2, 6, 8).to(dtype).unbind()
    bias = torch.randn(2, 6, 6)
    bias[:, 1], bias[:, 2, :3], bias[:, 3] = -math.inf, -math.inf, -1e9
    bias.requires_grad_()
    fused = regard.attention(query, key, value, bias=bias, causal=True)
    reference, _ = regard.attention(query, key, value, bias=bias, causal=True, return_weights=True)
    (fused_gradient,) = torch.autograd.grad(fused.float().square().sum(), bias)
    (reference_gradient,) = torch.autograd.grad(reference.float().square().sum(), bias)
    assert fused_gradient.abs().max() > 0.01
    torch.testing.assert_close(fused_gradient, reference_gradient, atol=20 * TOLERANCE[dtype], rtol=0)


def test_a_key_that_a_bias_hides_changes_nothing_on_the_reference_path() -> None:
    x = torch.ones(1, 1, 3, 8)
    loud = x.clone()
    loud[..., 2, :] = 1e38
    bias = torch.tensor([0.0, 0.0, -math.inf])
    output, _ = regard.attention(x, loud, x, bias=bias, return_weights=True)
    assert output.equal(torch.ones_like(x))


@pytest.mark.parametrize("length", [4, 80])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_bias_beyond_a_narrow_type_hides_nothing(length: int, dtype: torch.dtype) -> None:
    x = torch.randn(1, 1, length, 8).to(dtype)
    bias = torch.zeros(length, length)
    bias[0] = torch.finfo(torch.float32).min  # the same for all keys, of which none is hidden
    bias[1, 0] = 1e5
    fused, (reference, _) = (
        regard.attention(x, x, x, bias=bias),
        regard.attention(x, x, x, bias=bias, return_weights=True),
    )
    assert fused.isfinite().all()
    torch.testing.assert_close(fused, reference, atol=0.02, rtol=0.02)
    assert fused[..., 0, :].ne(0.0).any()


def test_scores_are_in_full_precision_under_autocast() -> None:
    query, key = torch.randn(1, 2, 5, 16), torch.randn(1, 2, 7, 16)
    expected = attention_scores(query, key, 0.25)
    with torch.autocast("cpu", torch.bfloat16):
        assert attention_scores(query, key, 0.25).equal(expected)
