"""What is needed to draw: matplotlib, which is an extra, and a file that it can write."""

from pathlib import Path
from typing import Any

from regard.errors import InputError

_FORMATS = (".png", ".svg", ".pdf")


def pyplot_for(path: Path) -> Any:
    """Give matplotlib's pyplot, ready to draw this file without a screen."""
    if path.suffix not in _FORMATS:
        raise InputError(f"{path} is not a picture that can be drawn; its name ends in one of {', '.join(_FORMATS)}")
    try:
        import matplotlib
    except ImportError:
        raise InputError("pictures need matplotlib, which is not installed: pip install 'regard[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
