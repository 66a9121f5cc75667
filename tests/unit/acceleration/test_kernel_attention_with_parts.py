"""The attention kernel with windows and biases by distance, against the plain layer in float64."""

import copy
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import regard
from regard.acceleration import attention as accelerated
from regard.acceleration.attention import KernelAttention
from regard.acceleration.kernel_attention import BIAS_END, MAX_WINDOW, kernel_attention
from regard.kernels.bindings import kernels
from regard.layers import KeyValue, MultiHeadAttention
from regard.layers.attention import AttentionParts
from regard.layers.patterns import BigBird, SlidingWindow
from regard.layers.positions import ALiBi, RelativePositions, RotaryPositions, ShawPositions, T5Bias
from regard.ops import KeyLengths, Mask

pytestmark = pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")

HEADS, WIDTH = 4, 8


def layer_with(parts: AttentionParts, kv_heads: int = HEADS) -> MultiHeadAttention:
    return MultiHeadAttention(HEADS * WIDTH, HEADS, num_kv_heads=kv_heads, parts=parts)


def outputs_and_gradients(
    layer: MultiHeadAttention, x: Tensor, mask: Mask | None, causal: bool, direction: Tensor
) -> list[Tensor]:
    x = x.detach().requires_grad_()
    output = layer(x, mask=mask, causal=causal)
    gradients = torch.autograd.grad(output, [x, *layer.parameters()], direction.to(x.dtype), allow_unused=True)
    return [output, *(gradient for gradient in gradients if gradient is not None)]


def by_kernel(layer: MultiHeadAttention) -> KernelAttention:
    single = copy.deepcopy(layer).float()
    single.__class__ = KernelAttention
    assert isinstance(single, KernelAttention)
    return single


def calls_of(layer: MultiHeadAttention, x: Tensor, mask: Mask | None = None) -> int:
    """How often a layer calls the kernel."""
    with patch.object(accelerated, "kernel_attention", wraps=kernel_attention) as kernel:
        layer(x, mask=mask)
    return kernel.call_count


POSITIONS = {
    "none": lambda causal: None,
    "rope": lambda causal: RotaryPositions(WIDTH),
    "T5": lambda causal: T5Bias(HEADS, bidirectional=not causal),
    "ALiBi": lambda causal: ALiBi(HEADS),
}


@given(
    st.sampled_from(sorted(POSITIONS)),
    st.sampled_from([None, 1, 7, 64, 150]),
    st.tuples(st.integers(1, 300), st.integers(0, 300)),
    st.tuples(st.booleans(), st.booleans(), st.sampled_from([1, 2, 4])),
    st.integers(0, 2**31),
)
def test_it_gives_the_plain_layer_in_float64(
    positions: str, window: int | None, lengths: tuple[int, int], how: tuple[bool, bool, int], seed: int
) -> None:
    torch.manual_seed(seed)
    causal, padded, kv_heads = how
    pattern = None if window is None else SlidingWindow(window)
    layer = layer_with(AttentionParts(POSITIONS[positions](causal), pattern), kv_heads).double()
    T = lengths[0]
    x = torch.randn(2, T, layer.d_model, dtype=torch.float64)
    mask = KeyLengths(torch.tensor([T, min(T, lengths[1])])) if padded else None
    direction = torch.randn(x.shape)
    expected = outputs_and_gradients(layer, x, mask, causal, direction)
    found = outputs_and_gradients(by_kernel(layer), x.float(), mask, causal, direction)
    for ours, reference in zip(found, expected, strict=True):
        # Gradients of biases add up what cancels out.
        largest = max(1.0, float(reference.detach().abs().max()))
        assert (ours.double() - reference).abs().max() <= 2e-5 * largest * max(1, T // 64)


@pytest.mark.parametrize("parts", [{"pattern": SlidingWindow(40)}, {"positions": T5Bias(HEADS, bidirectional=True)}])
def test_it_is_the_kernel_that_computes(parts: dict[str, RelativePositions | SlidingWindow]) -> None:
    layer = by_kernel(layer_with(AttentionParts(**parts)))  # type: ignore[arg-type]
    x = torch.randn(2, 300, layer.d_model)
    assert calls_of(layer, x) == 1
    assert calls_of(layer, x, KeyLengths(torch.tensor([300, 3]))) == 1


@pytest.mark.parametrize(
    "parts",
    [
        AttentionParts(pattern=SlidingWindow(MAX_WINDOW + 1)),
        AttentionParts(pattern=SlidingWindow(8, sinks=2)),
        AttentionParts(pattern=BigBird()),
        AttentionParts(ShawPositions(WIDTH, WIDTH)),
        AttentionParts(RotaryPositions(WIDTH)),
        AttentionParts(ALiBi(HEADS), softcap=30.0),
        AttentionParts(ALiBi(1)),
        AttentionParts(T5Bias(1, bidirectional=True)),
    ],
)
def test_the_plain_layer_computes_what_the_kernel_does_not_know(parts: AttentionParts) -> None:
    layer = by_kernel(layer_with(parts))
    x = torch.randn(1, 100, layer.d_model)
    assert calls_of(layer, x) == 0
    torch.testing.assert_close(layer(x), MultiHeadAttention.forward(layer, x))


def test_other_positions_than_0_1_2_are_left_to_the_plain_layer() -> None:
    layer = layer_with(AttentionParts(ALiBi(HEADS)))
    fast, x, positions = by_kernel(layer), torch.randn(1, 9, layer.d_model), torch.arange(9) * 3
    expected = layer(x, positions=positions)
    assert not torch.allclose(expected, layer(x))
    torch.testing.assert_close(fast(x, positions=positions), expected)


@pytest.mark.parametrize("positions", [ALiBi(HEADS), RotaryPositions(WIDTH)])
def test_what_is_accelerated_is_still_compiled_and_exported(positions: RelativePositions) -> None:
    layer = by_kernel(layer_with(AttentionParts(positions))).eval()
    x = torch.randn(1, 9, layer.d_model)
    exported = torch.export.export(layer, (x,)).module()
    torch.testing.assert_close(exported(x), layer(x))
    traced = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(traced(x), layer(x))


def test_a_window_of_nothing_is_the_plain_layers() -> None:
    layer = by_kernel(layer_with(AttentionParts(pattern=SlidingWindow(1))))
    assert isinstance(layer.pattern, SlidingWindow)
    layer.pattern.size = 0
    x = torch.randn(1, 9, layer.d_model)
    torch.testing.assert_close(layer(x), MultiHeadAttention.forward(layer, x))
    torch.testing.assert_close(layer(x), layer.output(layer.value(x)))


def test_a_changed_bias_is_what_runs() -> None:
    layer = layer_with(AttentionParts(ALiBi(HEADS)))
    fast, x = by_kernel(layer), torch.randn(1, 9, layer.d_model)
    assert fast.positions is not None
    fast.positions.bias = lambda query, at, of: torch.zeros(1, HEADS, len(at), len(of))  # type: ignore[method-assign,assignment]
    plain = layer_with(AttentionParts())
    plain.load_state_dict(fast.state_dict())
    torch.testing.assert_close(fast(x), plain(x))
    assert not torch.allclose(fast(x), layer(x))


@pytest.mark.parametrize("parts", ["window", "bias"])
@pytest.mark.parametrize("causal", [False, True])
def test_padding_neighbors_and_threads_change_no_bit(parts: str, causal: bool) -> None:
    torch.manual_seed(0)
    B, T = 3, 700
    window, bias = (33, None) if parts == "window" else (0, torch.randn(HEADS, 2 * T - 1 + BIAS_END))
    inputs = [torch.randn(B, HEADS, T, WIDTH, requires_grad=True) for _ in range(3)]
    allowed = torch.ones(B, 1, 1, T, dtype=torch.bool)
    allowed[1, ..., 500:] = False
    direction = torch.randn(B, HEADS, T, WIDTH)

    def found(threads: int) -> list[Tensor]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            q, k, v = inputs
            output = kernel_attention(q, k, v, causal, allowed, 0.3, window, bias)
            return [output, *torch.autograd.grad(output, inputs, direction)]
        finally:
            torch.set_num_threads(before)

    together = found(1)
    assert all(map(torch.equal, together, found(3)))
    q, k, v = (x[1:2, :, :500].detach() for x in inputs)
    short = None if bias is None else bias[:, 200:-200].contiguous()
    alone = kernel_attention(q, k, v, causal, None, 0.3, window, short)
    assert torch.equal(alone[0], together[0][1, :, :500])


def test_a_query_without_keys_gets_zeros_and_zero_gradients() -> None:
    q, k, v = (torch.randn(1, 1, 100, 8, requires_grad=True) for _ in range(3))
    allowed = torch.zeros(1, 1, 1, 100, dtype=torch.bool)
    allowed[..., 60:] = True
    output = kernel_attention(q, k, v, False, allowed, 1.0, 3)
    assert output[:, :, :57].eq(0.0).all()
    assert output[:, :, 57:].ne(0.0).all()
    gradients = torch.autograd.grad(output.sum(), (q, k, v))
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert gradients[0][:, :, :57].eq(0.0).all()


def test_gradients_have_gradients() -> None:
    torch.manual_seed(0)
    layer = layer_with(AttentionParts(T5Bias(HEADS, bidirectional=True), SlidingWindow(3)))
    fast, x = by_kernel(layer), torch.randn(1, 9, layer.d_model)

    def second(of: MultiHeadAttention) -> list[Tensor]:
        at = x.detach().requires_grad_()
        parameters = [parameter for name, parameter in of.named_parameters() if "key.bias" not in name]
        (first,) = torch.autograd.grad(of(at).sin().sum(), at, create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), [at, *parameters]))

    torch.testing.assert_close(second(fast), second(layer), rtol=1e-3, atol=1e-4)


def test_a_model_with_relative_positions_is_accelerated() -> None:
    config = regard.TransformerConfig.preset(
        "tiny", vocab_size=50, positions="rope", attention={"pattern": {"kind": "window", "size": 8}}
    )
    model = regard.Transformer(config).eval()
    source, target = torch.randint(1, 50, (2, 90)), torch.randint(1, 50, (2, 70))
    expected = model(source, target)
    report = regard.accelerate(model)
    assert len(report.replaced["KernelAttention"]) == config.encoder_layers + 2 * config.decoder_layers
    torch.testing.assert_close(model(source, target), expected, rtol=1e-4, atol=1e-4)


def test_the_heads_of_a_cache_are_those_of_the_plain_layer() -> None:
    layer = layer_with(AttentionParts(T5Bias(HEADS, bidirectional=False), SlidingWindow(4)))
    fast, x = by_kernel(layer), torch.randn(2, 11, layer.d_model)
    expected = layer(x, causal=True)
    cache = fast.start_cache()
    steps = [fast(x[:, :5], cache=cache), *(fast(x[:, t : t + 1], cache=cache) for t in range(5, 11))]
    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=1e-4, atol=1e-5)


def test_weights_are_those_of_the_plain_layer() -> None:
    layer = layer_with(AttentionParts(ALiBi(HEADS), SlidingWindow(2)))
    x = torch.randn(1, 9, layer.d_model)
    expected = layer(x, return_weights=True)
    torch.testing.assert_close(by_kernel(layer)(x, return_weights=True), expected)
    heads, _ = by_kernel(layer).heads(
        torch.randn(1, HEADS, 9, WIDTH), KeyValue(*torch.randn(2, 1, HEADS, 9, WIDTH)), None, None
    )
    assert heads.shape == (1, HEADS, 9, WIDTH)
