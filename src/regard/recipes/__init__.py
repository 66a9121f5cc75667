"""Run files that ship with the package, found by their names."""

import os
from importlib.resources import files
from pathlib import Path

from regard.errors import ConfigError


def names() -> list[str]:
    """List the recipes."""
    return sorted(Path(str(entry)).stem for entry in files(__name__).iterdir() if entry.name.endswith(".toml"))


def path_of(name: str) -> Path:
    """Return the file of a recipe."""
    return Path(str(files(__name__) / f"{name}.toml"))


def find(name: str | os.PathLike[str]) -> Path:
    """Return the run file of this path, or else the recipe of this name.

    >>> find("dates") == path_of("dates")
    True
    """
    if not isinstance(name, str | os.PathLike):
        raise ConfigError(f"a run file is named by a string or a path, not by a {type(name).__name__}")
    path = Path(name)
    if path.is_file() or path.suffix == ".toml":
        return path
    if str(name) not in names():
        raise ConfigError(f"{name} is neither a file nor one of the recipes: {', '.join(names())}")
    return path_of(str(name))
