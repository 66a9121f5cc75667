"""Run files that ship with the package, found by their names."""

from importlib.resources import files
from pathlib import Path


def names() -> list[str]:
    """List the recipes."""
    return sorted(Path(str(entry)).stem for entry in files(__name__).iterdir() if entry.name.endswith(".toml"))


def path_of(name: str) -> Path:
    """Return the file of a recipe."""
    return Path(str(files(__name__) / f"{name}.toml"))
