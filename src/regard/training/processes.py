"""Distributed training: the rank of this process and its collectives."""

import os
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from regard.devices import resolve_device

_PATIENCE = timedelta(hours=6)  # how long processes wait for one that encodes a corpus or validates

_PAUSE = 0.2  # seconds


class Processes:
    """The processes of a run. torchrun starts many and tells each by its environment; otherwise there is one."""

    def __init__(self, device: torch.device | None = None) -> None:
        """Join the other processes, if there are any, to train on a device."""
        self.device = resolve_device("cpu") if device is None else device
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0")) if self.count > 1 else 0
        if self.count > 1 and not dist.is_initialized():
            store, _, _ = next(iter(rendezvous("env://", self.rank, self.count, timeout=_PATIENCE)))
            # torchrun keeps its store when it starts processes again; without a prefix for each attempt they would
            # find the addresses of those that were lost, and wait for them.
            store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
            if self.device.type == "cuda":
                self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
                torch.cuda.set_device(self.device)
            backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.count, timeout=_PATIENCE)

    @property
    def is_main(self) -> bool:
        """Whether this is the one that writes files and talks to people."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until all processes reach this point."""
        if self.count > 1:
            dist.barrier()

    def all_reduce_scalars(self, *numbers: float) -> list[float]:
        """Add each number up over all processes."""
        if self.count == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64)  # on the host: nobody waits for a device
        dist.all_reduce(tensor)
        return tensor.tolist()

    def all_reduce(self, tensor: Tensor) -> None:
        """Add a tensor up over all processes, in place and on its device."""
        if self.count > 1:
            dist.all_reduce(tensor)

    def broadcast(self, value: Any) -> Any:
        """Return everyone what the first process has: a string, a number, a truth."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box)
        return box[0]

    def all_gather(self, value: Any) -> list[Any]:
        """Return everyone what each process has, in the order of the processes."""
        if self.count == 1:
            return [value]
        everyone: list[Any] = [None] * self.count
        dist.all_gather_object(everyone, value)
        return everyone

    def lost(self, error: RuntimeError) -> bool:
        """Whether an error is that of a connection to another process, rather than of a computation."""
        return isinstance(error, dist.DistError) or any(name in str(error).lower() for name in ("gloo", "nccl"))

    def close(self) -> None:
        """Destroy the process group after a barrier, so that no process reports another as lost."""
        if self.count > 1 and dist.is_initialized():
            # Gloo's threads free the tensors of a collective after it has returned; one that does so while the
            # interpreter ends would abort the process, and DDP keeps the threads beyond the group.
            time.sleep(_PAUSE)
            dist.destroy_process_group()
