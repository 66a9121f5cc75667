"""A sparse attention pattern as a picture: which keys each query attends to."""

import os
from typing import Any

from regard.files import replaced_file
from regard.layers.patterns import Pattern
from regard.pictures import new_figure, picture_path


def draw_pattern(pattern: Pattern, path: str | os.PathLike[str] | None = None, *, length: int = 64) -> Any:
    """Draw who attends to whom in an encoder and in a causal decoder; return the matplotlib figure.

    Each row is a query, each column a key. With `path`, a .png, .svg or .pdf, the figure is written there too.

    >>> from regard.layers.patterns import SlidingWindow
    >>> figure = draw_pattern(SlidingWindow(4, sinks=1))
    >>> [axes.get_title() for axes in figure.axes]
    ['encoder', 'causal decoder']
    """
    destination = None if path is None else picture_path(path)
    mask = pattern.dense(length)
    figure = new_figure(5.2, 2.9)
    left, right = figure.subplots(1, 2)
    for axes, title, allowed in ((left, "encoder", mask), (right, "causal decoder", mask.tril())):
        axes.imshow(allowed.numpy(), cmap="Blues", vmin=0, vmax=1.4, interpolation="nearest")
        axes.set(title=title, xlabel="key", ylabel="query", xticks=(0, length - 1), yticks=(0, length - 1))
    if destination is not None:
        with replaced_file(destination) as fresh:
            figure.savefig(fresh, dpi=90, format=destination.suffix[1:])
    return figure
