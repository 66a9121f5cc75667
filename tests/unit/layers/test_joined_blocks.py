import torch

from regard.layers import KeyValue
from regard.layers.joined_blocks import RecomputeConcat, joined
from regard.layers.patterns import SlidingWindow
from regard.layers.softmax_attention import Placement, SoftmaxAttention


def test_what_is_joined_is_not_kept_for_the_backward_pass() -> None:
    blocks = [torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(2)]
    x = joined(blocks)
    with RecomputeConcat((x, blocks)):
        y = x.square().sum()
    x.data.zero_()  # a copy that had been kept would be zeros now
    y.backward()
    for block in blocks:
        assert block.grad is not None
        torch.testing.assert_close(block.grad, 2 * block.detach())


def test_other_tensors_are_kept_as_they_are() -> None:
    blocks = [torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(2)]
    x = joined(blocks)
    with RecomputeConcat((x, blocks)):
        y = (x.transpose(2, 3).exp() * x[:, :, :2].sum()).sum()
    (found,) = torch.autograd.grad(y, blocks[:1], retain_graph=True)
    z = joined(blocks)
    (expected,) = torch.autograd.grad((z.transpose(2, 3).exp() * z[:, :, :2].sum()).sum(), blocks[:1])
    torch.testing.assert_close(found, expected)


def test_attention_in_blocks_is_differentiated_twice() -> None:
    index = torch.arange(5)
    at = Placement(index, index, index, index)
    varied = SoftmaxAttention(1.0, pattern=SlidingWindow(1, sinks=1, block=2))
    inputs = [torch.randn(1, 1, 5, 2, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradgradcheck(lambda q, k, v: varied._in_blocks(q, KeyValue(k, v), None, None, at, 2), inputs)
