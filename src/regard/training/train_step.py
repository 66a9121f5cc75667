"""A model with its optimizer, as one process holds it: whole, replicated (DDP) or in part (FSDP2)."""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from regard.acceleration.accelerate import accelerate
from regard.devices import widest_float
from regard.errors import ConfigError, ModelError
from regard.layers.dropout_rates import dropout_rates
from regard.model import Transformer, TransformerConfig
from regard.model.directory import check_model
from regard.model.transformer import plain_model
from regard.model.undescribed import undescribed_modules
from regard.ops.rng import keyed_dropout, mixed
from regard.training.checkpoints import Tensors
from regard.training.examples import Batch
from regard.training.losses import Loss, LossAt
from regard.training.processes import Processes
from regard.training.recipe import Run

Build = Callable[[TransformerConfig], Transformer]
"""Makes the model of a config; `Transformer` itself, unless a changed model is trained."""
_SCALER = ("scale", "_growth_tracker")
"""What a scaler of float16 losses learns while it runs."""


@dataclass(frozen=True)
class StepResult:
    """The result of a step, kept on its device; reading it synchronizes."""

    total: Tensor
    """The loss, summed over all batches and processes."""
    tokens: int
    norm: Tensor
    """Of the gradient, before it is clipped."""
    good: Tensor
    """Whether both are finite; if not, the step is left out."""

    @property
    def is_on_cpu(self) -> bool:
        """Whether it is in the host's own memory, and nobody waits."""
        return self.good.is_cpu

    def read(self) -> tuple[float, float, bool]:
        """Return the loss per token, the norm, and whether they are finite."""
        return float(self.total) / self.tokens, float(self.norm), bool(self.good)


class TrainStep:
    """Takes gradients and steps; its state is named tensors."""

    def __init__(
        self, run: Run, config: TransformerConfig, processes: Processes, loss_at: LossAt, build: Build = Transformer
    ) -> None:
        self._settings, self._optimizer_settings = run.training, run.optimizer
        self._processes, self._loss_at = processes, loss_at
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(run.training.seed)
            self.model = build(config)
        check_model(self.model)
        self.model.train()
        self.undescribed_modules = undescribed_modules(self.model, plain_model(config))
        """As `build` made them: sharding gives modules classes of torch's."""
        if run.training.precision == "float64":
            self.model.double()
        self.device = processes.device
        self.model.to(self.device)
        if self.device.type == "cpu" and not run.training.compile:
            accelerate(self.model, precision=run.training.precision, softmax_gradient=run.training.softmax_gradient)
        elif run.training.precision == "int8":
            raise ConfigError("training.precision is int8, which is for CPUs without compile; bfloat16 is for GPUs")
        self._sum_dtype = widest_float(self.device)
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=run.training.precision == "float16")
        self._rates = dropout_rates(self.model)
        self._sharded = run.training.sharded and processes.count > 1
        self._objective: nn.Module = _Objective(self.model)
        if run.training.compile:
            self._objective.compile(dynamic=True)
        if self._sharded:
            _shard(self.model, self._objective)
        elif processes.count > 1:
            self._objective = nn.parallel.DistributedDataParallel(self._objective)
        self._names = {parameter: name for name, parameter in self.model.named_parameters()}
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=0.0,
            betas=run.optimizer.betas,
            eps=run.optimizer.eps,
            weight_decay=run.optimizer.weight_decay,
            fused=not self._sharded,
        )
        averaging = run.averaging
        self._decay = averaging.decay if averaging.kind == "running" else None
        self.running = {name: p.detach().clone() for name, p in self.model.named_parameters()} if self._decay else None

    def gradients(self, step: int, batches: list[Batch]) -> StepResult:
        """Compute the gradients of a step's loss.

        Sums over all batches and processes are divided by all target tokens, so that how a step is cut up does not
        matter.
        """
        self._optimizer.zero_grad()
        self._drop(step)
        tokens = max(1, sum(batch.tokens for batch in batches))
        self._seed(step)
        total = torch.zeros((), dtype=self._sum_dtype, device=self.device)
        for number, batch in enumerate(batches, 1):
            share = batch.share(self._processes.rank, self._processes.count)
            keys = keyed_dropout(self._keys(step, share)) if self.device.type == "cpu" else contextlib.nullcontext()
            share = share.to(self.device)
            with self._communicating(last=number == len(batches)), keys:
                with self._products():
                    loss = self._objective(share, self._loss_at(step))
                # Processes average their gradients; the sum is wanted.
                self._scaler.scale(loss * (self._processes.count / tokens)).backward()
            total += loss.detach()
        self._processes.all_reduce(total)
        self._scaler.unscale_(self._optimizer)
        norm = self._clipped_norm()
        return StepResult(total, tokens, norm, total.isfinite() & norm.isfinite())

    def step(self, learning_rate: float, number: int, result: StepResult) -> None:
        """Move the weights, and the running average after them; a step that is not finite is left out on the device."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        if not self._sharded:
            self._optimizer.found_inf = 1.0 - result.good.float()  # type: ignore[attr-defined]
        elif not result.good:  # the unfused optimizer takes no such flag: somebody has to look
            if self._scaler.is_enabled():  # all processes know that the step is bad, each sees its own gradients only
                self._scaler.update(self._scaler.get_scale() * self._scaler.get_backoff_factor())
            return
        self._scaler.step(self._optimizer)
        self._scaler.update()
        if self.running is not None and self._decay is not None:
            # A mean of few steps forgets quickly, or it would remember the random start for long.
            decay = min(self._decay, (1 + number) / (10 + number))
            weight = (1.0 - decay) * result.good.to(next(self.model.parameters()).dtype)
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    _local(self.running[name]).lerp_(_local(parameter), weight)

    def tensors(self) -> dict[str, Tensors]:
        """Return the state by kind: this process's part of it."""
        moments = {
            f"{name}/{key}": _local(value)
            for parameter, name in self._names.items()
            for key, value in self._optimizer.state[parameter].items()
        }
        state = {"weights": {name: _local(p.detach()) for name, p in self.model.named_parameters()}, "moments": moments}
        if self.running is not None:
            state["running"] = {name: _local(tensor) for name, tensor in self.running.items()}
        if self._scaler.is_enabled():
            state["scaler"] = {name: torch.tensor(self._scaler.state_dict()[name]) for name in _SCALER}
        return state

    def load(self, tensors: dict[str, Tensors], origin: object) -> None:
        """Take a state over: whole tensors, of which each process keeps its part."""
        try:
            with torch.no_grad():
                for parameter, name in self._names.items():
                    _assign(parameter, tensors["weights"][name])
                    if self.running is not None:
                        _assign(self.running[name], tensors["running"][name])
            self._load_moments(tensors["moments"])
            if self._scaler.is_enabled() and "scaler" in tensors:
                found = {name: tensors["scaler"][name].item() for name in _SCALER}
                self._scaler.load_state_dict({**self._scaler.state_dict(), **found})
        except (KeyError, RuntimeError) as error:
            raise ModelError(f"{origin} does not fit the model of this run: {error}") from None

    def whole_weights(self, *, running: bool = False) -> Tensors:
        """Return the weights, or their running average, in full: all processes ask for them together."""
        chosen = self.running if running and self.running is not None else dict(self.model.named_parameters())
        return {name: _whole(tensor.detach()) for name, tensor in chosen.items()}

    @property
    def sharded(self) -> bool:
        """Whether this process holds a part only."""
        return self._sharded

    def _load_moments(self, moments: Tensors) -> None:
        for parameter, name in self._names.items():
            found = {key.rpartition("/")[2]: value for key, value in moments.items() if key.rpartition("/")[0] == name}
            if isinstance(parameter, DTensor):
                found = {
                    key: distribute_tensor(value, parameter.device_mesh, parameter.placements) if value.dim() else value
                    for key, value in found.items()
                }
            if found:
                self._optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in found.items()}

    def _drop(self, step: int) -> None:
        """Set the rates of dropout for a step, while they rise."""
        rise = self._settings.dropout_rise
        if step <= rise + 1:
            for layer, name, rate in self._rates:
                setattr(layer, name, rate * step / (rise + 1))

    def _seed(self, step: int) -> None:
        """Make every generator a function of the seed and the step: there is nothing to restore when a run resumes."""
        # On a GPU dropout has no keys: each process draws for its own rows.
        rank = 0 if self.device.type == "cpu" else self._processes.rank
        seed = int(mixed(torch.tensor([self._settings.seed * 1_000_003 + step + (rank << 40)]))) % 2**32
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)

    def _keys(self, step: int, batch: Batch) -> Tensor:
        """One key an example for what is dropped from it, whatever else is in its batch."""
        start = mixed(torch.tensor([self._settings.seed])) + step
        return mixed(mixed(start) + batch.examples_B)

    @contextlib.contextmanager
    def _products(self) -> Iterator[None]:
        """Multiply in the precision of the run, forward and backward."""
        device = self.device.type
        half = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(self._settings.precision)
        with torch.autocast(device, half or torch.bfloat16, enabled=half is not None):
            yield

    def _communicating(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        # Processes add their gradients up once a step, with the last batch.
        if isinstance(self._objective, nn.parallel.DistributedDataParallel) and not last:
            return self._objective.no_sync()
        return contextlib.nullcontext()

    def _clipped_norm(self) -> Tensor:
        longest = self._optimizer_settings.clip
        norm = nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        whole = _whole(norm)
        # Where it costs no wait to look, no gradient is multiplied by one.
        if longest is not None and not (whole.is_cpu and not whole > longest):
            nn.utils.clip_grads_with_norm_(self.model.parameters(), longest, norm)
        return whole


class _Objective(nn.Module):
    """The loss as a module: what is shared between processes is gathered and reduced around its one call."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, loss: Loss) -> Tensor:
        return loss(self.model, batch)


def _shard(model: Transformer, objective: nn.Module) -> None:
    from torch.distributed.fsdp import fully_shard

    layers = [layer for stack in (model.encoder, model.decoder) for layer in _layers(stack)]
    holders = Counter(parameter for layer in dict.fromkeys(layers) for parameter in layer.parameters())
    for layer in dict.fromkeys(layers):
        # FSDP takes a tensor that layers share, as T5's table, in one group with all its holders: here the objective's.
        if all(holders[parameter] == 1 for parameter in layer.parameters()):
            fully_shard(layer)
    fully_shard(objective)


def _layers(stack: Any) -> Iterator[nn.Module]:
    if stack is not None:
        yield from stack.layers


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _assign(place: Tensor, value: Tensor) -> None:
    if place.shape != value.shape:
        raise RuntimeError(f"{tuple(value.shape)} for {tuple(place.shape)}")
    if isinstance(place, DTensor):
        value = distribute_tensor(value.to(place.dtype), place.device_mesh, place.placements).to_local()
    _local(place).copy_(value)
