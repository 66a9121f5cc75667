"""How a model runs: the options of the verbs that load one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import typer

from regard.errors import InputError

runtime_option = partial(typer.Option, rich_help_panel="Runtime")


@dataclass(frozen=True)
class Runtime:
    """The device, the threads and the precision that a model computes with."""

    threads: Annotated[int | None, runtime_option(min=1, help="CPU threads; by default one per core.")] = None
    precision: Annotated[str, runtime_option(help="auto, float or int8.")] = "auto"
    device: Annotated[str, runtime_option(help="cpu, cuda, mps, or auto: a GPU if there is one.")] = "auto"

    def load(self, model: str, task: str | Sequence[str] | None = None) -> Any:
        """Load a model directory, or a model of the package by its name, for a task or for one of several."""
        precision = self._checked_precision()
        from regard.pipelines import load

        self.set_threads()
        return load(model, task=task, precision=precision, device=self.device)

    def set_threads(self) -> None:
        """Have torch use this many threads."""
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)

    def _checked_precision(self) -> Literal["auto", "float", "int8"]:
        match self.precision:
            case "auto" | "float" | "int8":
                return self.precision
        raise InputError(f"--precision is {self.precision!r}; it is auto, float or int8")
