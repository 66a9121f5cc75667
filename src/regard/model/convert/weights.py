"""Access to another library's state dict that reports missing and unused tensors."""

from collections.abc import Mapping

from torch import Tensor

from regard.errors import ModelError
from regard.model.config import TransformerConfig
from regard.model.directory import common_type, load_tensors
from regard.model.transformer import Transformer


class ForeignWeights:
    """A state dict that knows which of its tensors have been taken."""

    def __init__(self, tensors: Mapping[str, Tensor], origin: str) -> None:
        self._tensors = dict(tensors)
        self._left = set(tensors)
        self._origin = origin
        for name, tensor in tensors.items():
            if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
                kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
                raise ModelError(f"{origin}: {name} is {kind}; weights are floating-point")
            is_matrix = name.endswith("weight") and "norm" not in name
            if tensor.dim() not in ((2,) if is_matrix else (1, 2)) or tensor.numel() == 0:
                raise ModelError(f"{origin}: {name} has shape {tuple(tensor.shape)}, which no weight of this kind has")

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, *names: str) -> Tensor:
        """Return the first of these tensors that is there; all of them count as taken."""
        self._left.difference_update(names)
        for name in names:
            if name in self._tensors:
                return self._tensors[name]
        raise ModelError(f"{self._origin}: {names[0]} is missing from the weights")

    def depth(self, stack: str, name: str = "layers") -> int:
        """Count the layers below `stack`, whose tensors are named `stack.layers.0.…`, or as `name` says."""
        prefix = f"{stack}.{name}."
        numbers = {key.removeprefix(prefix).split(".")[0] for key in self._tensors if key.startswith(prefix)}
        return len(numbers)

    def finish(self) -> None:
        """Refuse tensors that nothing asked for: the model they come from computes something that ours would not."""
        if self._left:
            example = min(self._left)
            raise ModelError(f"{self._origin}: {len(self._left)} tensors have no place here, {example} among them")


def assemble(config: TransformerConfig, tensors: Mapping[str, Tensor], origin: str) -> Transformer:
    """Build the model of a configuration and fill it with tensors under our names, in their precision."""
    model = Transformer(config).to(common_type(tensors, source=origin))
    everything = model.state_dict(keep_vars=True)
    # Further names of matrices that have one already.
    named = dict(model.named_parameters())
    shared = [name for name in everything if name not in named]
    load_tensors(model, {name: tensor for name, tensor in tensors.items() if name not in shared}, source=origin)
    for name in shared:
        if not _same(tensors[name].to(everything[name].dtype), everything[name]):
            raise ModelError(f"{origin}: {name} is to be shared, but differs from the matrix that it is shared with")
    return model.eval()


def layer_count(tensors: Mapping[str, Tensor], stack: str) -> int:
    """Count the layers of a stack, by tensors under our names."""
    return sum(name.startswith(f"{stack}.layers.") and name.endswith("feed_forward.expand.weight") for name in tensors)


def sharing(source: Tensor | None, target: Tensor, output: Tensor) -> str:
    """Return which of three embedding matrices are one, by their values."""
    tied = _same(target, output)
    if source is not None and _same(source, target):
        return "all" if tied else "source-target"
    return "target-output" if tied else "none"


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a == b).all())
