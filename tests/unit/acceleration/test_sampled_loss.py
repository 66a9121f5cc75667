"""A gradient whose small elements are sampled: the loss is exact, the gradient is unbiased, by any path."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.acceleration import sampled_loss as module
from regard.acceleration.accelerate import accelerate
from regard.acceleration.sampled_loss import SMALL, sampled_cross_entropy, sampled_from, sampled_r_drop
from regard.errors import InputError
from regard.kernels.bindings import kernels
from regard.layers import OutputProjection
from regard.ops import label_smoothed_cross_entropy, r_drop_loss
from regard.ops.rng import keyed_dropout, keys_by_position

Gradients = tuple[Tensor, ...]
Loss = Callable[..., Tensor]
needs_kernels = pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")


def gradients(loss: Loss, states: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None = None) -> Gradients:
    leaves = [x.clone().requires_grad_() for x in (states, weight, *([] if bias is None else [bias]))]
    total = loss(*leaves[:2], labels, bias_W=leaves[2] if bias is not None else None)
    total.backward()
    return total.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)


def problem(R: int, W: int, D: int, seed: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    states, weight = (torch.randn(n, D, generator=generator, dtype=dtype) for n in (R, W))
    return states, weight * 0.3, torch.randint(W, (R,), generator=generator)


def exact_cross_entropy(states: Tensor, weight: Tensor, labels: Tensor, bias_W: Tensor | None = None) -> Tensor:
    return label_smoothed_cross_entropy(F.linear(states, weight, bias_W), labels, reduction="sum")


def exact_r_drop(states: Tensor, weight: Tensor, labels: Tensor, bias_W: Tensor | None = None) -> Tensor:
    """R-Drop's loss, the second pass being the first with another scale."""
    first, second = (F.linear(x, weight, bias_W) for x in (states, SCALE * states))
    return r_drop_loss(first, second, labels, alpha=3.0)


def r_drop_of_two(
    states: Tensor, weight: Tensor, labels: Tensor, bias_W: Tensor | None = None, int8: bool = False
) -> Tensor:
    return sampled_r_drop(states, SCALE * states, weight, labels, bias_W=bias_W, alpha=3.0, int8=int8)


SCALE = 0.7
EXACT: dict[Loss, Loss] = {sampled_cross_entropy: exact_cross_entropy, r_drop_of_two: exact_r_drop}
any_loss = pytest.mark.parametrize("sampled", EXACT)


@needs_kernels
@any_loss
@given(
    R=st.integers(1, 40),
    W=st.integers(1, 300),
    D=st.sampled_from([8, 24, 64, 72, 136, 1032]),
    seed=st.integers(0, 99),
    with_bias=st.booleans(),
    int8=st.booleans(),
)
def test_the_kernel_samples_what_the_formula_samples(
    sampled: Loss, R: int, W: int, D: int, seed: int, with_bias: bool, int8: bool
) -> None:
    states, weight, labels = problem(R, W, D, seed)
    bias = torch.linspace(-1, 1, W) if with_bias else None
    loss = partial(sampled, int8=int8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_INT8_ROWS", 20)  # so that there are several pieces
        torch.manual_seed(seed)
        by_kernel = gradients(loss, states, weight, labels, bias)
        patch.setattr(module, "_can_draw", lambda *_: False)
        torch.manual_seed(seed)
        by_formula = gradients(loss, states, weight, labels, bias)
    torch.testing.assert_close(by_kernel[0], by_formula[0], rtol=1e-5, atol=1e-4)
    # A rounding may tip one element over, which changes one row of each gradient.
    for mine, other in zip(by_kernel[1:], by_formula[1:], strict=True):
        changed = ((mine - other).abs() > 2e-4).reshape(len(mine), -1).any(1)
        assert int(changed.sum()) <= 1


@needs_kernels
@any_loss
@pytest.mark.parametrize("int8", [False, True])
def test_the_number_of_threads_changes_nothing(sampled: Loss, int8: bool) -> None:
    states, weight, labels = problem(200, 1003, 72, 6)
    loss, results = partial(sampled, int8=int8), []
    for threads in (1, 2, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "threads", lambda count=threads: count)
            torch.manual_seed(0)
            results.append(gradients(loss, states, weight, labels, torch.zeros(1003)))
    for other in results[1:]:
        assert all(mine.equal(first) for mine, first in zip(other, results[0], strict=True))


@any_loss
def test_the_loss_is_exact(sampled: Loss) -> None:
    states, weight, labels = problem(700, 500, 32, 0, torch.float64)
    bias = torch.linspace(-1, 1, 500, dtype=torch.float64)
    found, exact = sampled(states, weight, labels, bias_W=bias), EXACT[sampled](states, weight, labels, bias_W=bias)
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-9)


def test_logits_in_int8_change_the_loss_by_little() -> None:
    states, weight, labels = torch.randn(40, 64), torch.randn(200, 64) / 8, torch.randint(200, (40,))
    exact = sampled_cross_entropy(states, weight, labels)
    rounded = sampled_cross_entropy(states, weight, labels, int8=True)
    assert 1e-7 < float((rounded / exact - 1).abs()) < 0.01


@any_loss
@pytest.mark.parametrize("with_bias", [False, True])
def test_the_gradient_is_unbiased(sampled: Loss, with_bias: bool) -> None:
    states, weight, labels = problem(60, 600, 16, 1)
    bias = torch.zeros(600) if with_bias else None
    _, *exact = gradients(EXACT[sampled], states, weight, labels, bias)
    samples = 400
    sums = [torch.zeros_like(g) for g in exact]
    error = 0.0
    for seed in range(samples):
        torch.manual_seed(seed)
        _, *found = gradients(sampled, states, weight, labels, bias)
        error = max(error, *(float((d - e).norm() / e.norm()) for d, e in zip(found, exact, strict=True)))
        for total, one in zip(sums, found, strict=True):
            total += one
    assert 1e-3 < error < 0.2  # something is sampled, and it is close by itself
    for total, e in zip(sums, exact, strict=True):
        assert float((total / samples - e).norm() / e.norm()) < 3 * error / samples**0.5


def test_each_element_is_kept_with_its_own_probability() -> None:
    sizes = torch.tensor([[0.0, 0.1, -0.25, 0.5, -0.9, 1.0, 3.0]]) * SMALL
    words = torch.randint(-(2**62), 2**62, (20_000,), generator=torch.Generator().manual_seed(3))
    kept = sampled_from(sizes.expand(20_000, -1), words)
    torch.testing.assert_close(kept.mean(0), sizes[0], rtol=0.0, atol=0.015 * SMALL)
    assert set(kept[:, 2].tolist()) == {0.0, -SMALL}
    assert set(kept[:, 6].tolist()) == {3 * SMALL}


def test_what_is_sampled_for_a_token_does_not_depend_on_its_neighbors() -> None:
    states, weight, labels = problem(6, 400, 16, 2)
    rows, positions = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 1, 2, 0, 1, 0])
    keys = torch.tensor([11, 12, 13])

    def of(chosen: Tensor, keys: Tensor, rows: Tensor) -> Tensor:
        with keyed_dropout(keys), keys_by_position(rows, positions[chosen]):
            return gradients(sampled_cross_entropy, states[chosen], weight, labels[chosen])[1]

    everything = of(torch.arange(6), keys, rows)
    part = torch.tensor([3, 4])
    # Products of other shapes round otherwise; another sample would be further away.
    assert (of(part, keys[1:2], rows[part] - 1) - everything[part]).abs().max() < 1e-5
    assert (of(part, keys[2:], rows[part] - 1) - everything[part]).abs().max() > 1e-4


@any_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # by the kernel, and by the formula
def test_what_is_not_a_number_stays_none(sampled: Loss, dtype: torch.dtype) -> None:
    states, weight, labels = problem(3, 50, 8, 4, dtype)
    states[1, 2] = torch.nan
    loss, of_states, _ = gradients(sampled, states, weight, labels)
    assert loss.isnan()
    assert of_states[1].isnan().all()
    assert of_states[[0, 2]].isfinite().all()


def test_what_is_not_small_is_never_left_out() -> None:
    certain = sampled_from(torch.full((1, 3), 0.9), torch.tensor([0xFFFFFFFF]))
    assert certain.eq(0.9).all()


def test_bad_input_and_second_derivatives_are_refused() -> None:
    states, weight, labels = problem(3, 50, 8, 5)
    with pytest.raises(InputError, match=r"rows \(3, 8\) need one label each, got \(2,\)"):
        sampled_cross_entropy(states, weight, labels[:2])
    with pytest.raises(InputError, match="target 50 is outside the vocabulary of 50"):
        sampled_cross_entropy(states, weight, labels.clamp(min=50))
    with pytest.raises(InputError, match=r"rows \(3, 8\) do not fit weights \(50, 7\)"):
        sampled_cross_entropy(states, weight[:, :7], labels)
    with pytest.raises(InputError, match=r"weights \(50, 8\) need a bias for each word, got \(1,\)"):
        sampled_cross_entropy(states, weight, labels, bias_W=torch.zeros(1))
    with pytest.raises(InputError, match="labels are on meta, and the rows that they are for on cpu"):
        sampled_cross_entropy(states, weight, labels.to("meta"))
    with pytest.raises(InputError, match=r"passes of shapes \(3, 8\) and \(2, 8\) must be of one shape"):
        sampled_r_drop(states, states[:2], weight, labels)
    with pytest.raises(InputError, match="alpha is -1.0; it must be at least 0"):
        sampled_r_drop(states, states, weight, labels, alpha=-1.0)
    total = sampled_cross_entropy(states.requires_grad_(), weight, labels)
    with pytest.raises(InputError, match="a sampled loss has no second derivatives"):
        torch.autograd.grad(total, states, create_graph=True)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_accelerated_projection_has_the_losses_of_a_plain_one(precision: Literal["float32", "int8"]) -> None:
    output = OutputProjection(50, 8, bias=True)
    first, second, labels = torch.randn(2, 7, 8), torch.randn(2, 7, 8), torch.randint(50, (2, 7))

    def losses() -> tuple[Tensor, Tensor]:
        return output.loss(first, labels, smoothing=0.1), output.r_drop_loss(first, second, labels, alpha=2.0)

    expected = losses()
    accelerate(output, precision=precision, softmax_gradient="sampled")
    found = losses()
    assert all("SampledLoss" in type(loss.grad_fn).__name__ for loss in found)
    torch.testing.assert_close(found, expected, rtol=0.02 if precision == "int8" else 1e-5, atol=1e-4)
    output.register_forward_hook(lambda module, inputs, logits: torch.zeros_like(logits))
    torch.testing.assert_close(losses(), (14 * torch.tensor(50.0).log(),) * 2)
