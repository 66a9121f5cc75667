"""The models that come with the package."""

from pathlib import Path

_HERE = Path(__file__).parent


def names() -> list[str]:
    """Name the models."""
    return sorted(path.parent.name for path in _HERE.glob("*/config.json"))


def path_of(name: str) -> Path:
    """Give the directory of a model."""
    return _HERE / name
