"""The models that come with the package."""

import os
from pathlib import Path

from regard.errors import ModelError

_HERE = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the models."""
    return sorted(path.parent.name for path in _HERE.glob("*/config.json"))


def path_of(name: str) -> Path:
    """Return the directory of a model."""
    return _HERE / name


def find(name: str | os.PathLike[str]) -> Path:
    """Return the model directory of this path, or else the model of this name.

    >>> find("de-en") == path_of("de-en")
    True
    """
    if not isinstance(name, str | os.PathLike):
        raise ModelError(f"a model is named by a string or a path, not by a {type(name).__name__}")
    path = Path(name)
    if str(name) in names() and not (path / "config.json").exists():
        return path_of(str(name))
    if not path.exists():
        raise ModelError(f"{name} is no directory, and no model of the package: {', '.join(names())}")
    return path
