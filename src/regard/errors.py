"""Exceptions. Each message is one sentence: what failed, what was given, and what was expected."""

from pathlib import Path


class RegardError(Exception):
    """Anything that regard reports about its input; the command line prints it without a traceback."""

    exit_code = 1


class InputError(RegardError, ValueError):
    """A tensor or an argument that a function cannot take: its shape, its type or its values."""

    exit_code = 2


class ConfigError(RegardError):
    """A configuration that does not describe a model, or does not describe this one."""

    exit_code = 2


class DataError(RegardError):
    """Data that cannot be read, or is not what it is said to be."""

    exit_code = 3


class ModelError(RegardError):
    """A model on disk that cannot be read, or is not what its configuration says."""

    exit_code = 4


class WriteError(ModelError):
    """A model, a checkpoint or another file that cannot be written; what was there before is left as it was."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be written: {reason}")
        self.path, self.reason = path, reason


class NoSpaceError(WriteError):
    """A disk that is full."""


class StoppedError(RegardError):
    """Training that a signal ended: after a step, with its state saved, or before the first (`step` is None)."""

    def __init__(self, signal: int, step: int | None) -> None:
        when = "before training began; nothing was written"
        if step is not None:
            when = f"after step {step:,}; run the same command to resume"
        super().__init__(f"stopped by signal {signal} {when}")
        self.exit_code = 128 + signal


class OutOfMemoryError(RegardError, MemoryError):
    """Raised when there is not enough memory for a computation."""


class KernelError(RegardError):
    """Raised when a kernel fails unexpectedly: a bug in regard."""


class LostProcessError(RegardError):
    """Raised when another process of a distributed run has exited."""


class DivergedError(RegardError):
    """Raised when training diverges: losses or gradients are not finite."""

    exit_code = 5


def shown(value: object) -> str:
    """Return a value from outside as a message has it: in one line, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]} … ({len(text):,} characters)"
