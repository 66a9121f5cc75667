"""What is needed to draw: matplotlib, which is an extra, and a file name whose format it can write."""

import os
from pathlib import Path
from typing import Any

from regard.errors import InputError

_FORMATS = (".png", ".svg", ".pdf")


def picture_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a picture, whose name ends in a format that can be written."""
    path = Path(path)
    if path.suffix not in _FORMATS:
        raise InputError(f"{path} is not a picture that can be written; its name ends in one of {', '.join(_FORMATS)}")
    return path


def new_figure(width: float, height: float) -> Any:
    """Return an empty matplotlib figure of this size in inches. No window shows it, and no backend is chosen."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("pictures need matplotlib, which is not installed: pip install matplotlib") from None
    return Figure(figsize=(width, height), layout="constrained")
