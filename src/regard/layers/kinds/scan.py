"""A recurrent function applied segment by segment, with activation memory for one segment.

A state goes from segment to segment. The backward pass goes through the segments from the last to the first and
computes each of them again.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

Tensors = Sequence[Tensor | None]
Step = Callable[..., tuple[Tensor, Tensors]]
"""Takes a state and a segment of each sequence; returns its output, (…, …, length, …), and the state after it."""

_SEGMENT = 1024


def scan(step: Step, state: Tensors, *sequences: Tensor | None) -> tuple[Tensor, Tensors]:
    """Return the outputs of a step over all segments, joined, and the last state.

    Sequences run along their third dimension. Gradients go to them and to the first state, and to nothing else that the
    step may use.
    """
    if _length(sequences) <= _SEGMENT:
        return step(state, *sequences)
    output, *last = _Scan.apply(step, len(state), *state, *sequences)  # type: ignore[no-untyped-call]
    return output, last


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: Step, count: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        state: Tensors = tensors[:count]
        sequences = tensors[count:]
        ctx.save_for_backward(*sequences)
        ctx.set_materialize_grads(False)
        ctx.step, ctx.count, ctx.states = step, count, []
        joined = None
        for part, segment in _segments(sequences):
            ctx.states.append(state)
            output, state = step(state, *segment)
            if joined is None:  # in place: small outputs between what is freed would leave memory in pieces
                joined = output.new_empty(*output.shape[:2], _length(sequences), *output.shape[3:])
            joined[:, :, part] = output
        return joined, *(None if x is None else x.view_as(x) for x in state)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        sequences, count, needed = ctx.saved_tensors, ctx.count, ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            return None, None, *_differentiable(ctx.step, ctx.states[0], sequences, needed, grad_outputs)
        grad_output, *grad_state = grad_outputs
        grads = [torch.zeros_like(x) if need else None for x, need in zip(sequences, needed[count:], strict=True)]
        for before, (part, segment) in reversed(list(zip(ctx.states, _segments(sequences), strict=True))):
            state = [_leaf(x, True) for x in before]
            inputs = [_leaf(x, need) for x, need in zip(segment, needed[count:], strict=True)]
            with torch.enable_grad():
                output, after = ctx.step(state, *inputs)
            grad_part = None if grad_output is None else grad_output[:, :, part]
            found = _gradients((output, *after), (grad_part, *grad_state), (*state, *inputs))
            grad_state = found[:count]
            for whole, grad in zip(grads, found[count:], strict=True):
                if whole is not None and grad is not None:
                    whole[:, :, part] = grad
        return None, None, *grad_state, *grads


def _differentiable(
    step: Step, state: Tensors, sequences: Tensors, needed: Sequence[bool], grad_outputs: Tensors
) -> list[Tensor | None]:
    """Return gradients that have gradients in their turn, all segments in memory."""
    # Each as a tensor of its own: where one is computed from another, gradients would be counted twice.
    inputs = [
        None if x is None else x.view_as(x) if need else x.detach()
        for x, need in zip((*state, *sequences), needed, strict=True)
    ]
    last: Tensors = inputs[: len(state)]
    outputs = []
    for _, segment in _segments(inputs[len(state) :]):
        output, last = step(last, *segment)
        outputs.append(output)
    return _gradients((torch.cat(outputs, dim=2), *last), grad_outputs, inputs, create_graph=True)


def _gradients(
    outputs: Tensors, grad_outputs: Tensors, inputs: Tensors, *, create_graph: bool = False
) -> list[Tensor | None]:
    """Return the gradient of each input, None where it has none."""
    pairs = zip(outputs, grad_outputs, strict=True)
    known = [(x, grad) for x, grad in pairs if x is not None and grad is not None and x.requires_grad]
    wanted = [x for x in inputs if x is not None and x.requires_grad]
    if not known or not wanted:
        return [None] * len(inputs)
    reached, grads = zip(*known, strict=True)
    found = iter(torch.autograd.grad(reached, wanted, grads, create_graph=create_graph, allow_unused=True))
    return [next(found) if x is not None and x.requires_grad else None for x in inputs]


def _leaf(x: Tensor | None, needs_grad: bool) -> Tensor | None:
    return None if x is None else x.detach().requires_grad_(needs_grad and x.is_floating_point())


def _length(sequences: Tensors) -> int:
    return next(x.size(2) for x in sequences if x is not None)


def _segments(sequences: Tensors) -> Iterator[tuple[slice, list[Tensor | None]]]:
    for start in range(0, _length(sequences), _SEGMENT):
        part = slice(start, start + _SEGMENT)
        yield part, [None if x is None else x[:, :, part] for x in sequences]
