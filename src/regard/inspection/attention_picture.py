"""The cross-attention of a translation as a picture."""

import os
from typing import Any

from torch import Tensor

from regard.data.tokenizer import SPACE
from regard.errors import InputError
from regard.files import replaced_file
from regard.inference.results import CrossAttention
from regard.pictures import new_figure, picture_path

_LONGEST = 200  # words
_SHOWN = 0.3  # weights from here on are written into their fields


def draw_attention(record: CrossAttention, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw the attention weights of a translation, the mean of all heads and layers; return the matplotlib figure.

    Each row is a word of the target, each column one of the source. Subwords of one word are merged: the weight of a
    source word is the sum over its subwords, that of a target word the mean. With `path`, a .png, .svg or .pdf, the
    figure is written there too.

    >>> import regard
    >>> model = regard.load("de-en")
    >>> record = model.attention("Ich habe Hunger.", "I'm hungry.", to="en")
    >>> figure = regard.inspection.draw_attention(record)
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ["I'm", 'hungry.', '</s>']
    """
    destination = None if path is None else picture_path(path)
    source, target = _words(record.source), _words(record.target)
    if max(len(source), len(target)) > _LONGEST:
        raise InputError(f"a picture has space for {_LONGEST} words a side; there are {len(source)} and {len(target)}")
    weights = _by_word(record.mean_TS(), source, target)
    figure = new_figure(1.6 + 0.62 * len(source), 1.3 + 0.42 * len(target))
    axes = figure.subplots()
    axes.imshow(weights.numpy(), cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(source)), [_label(record.source, part) for part in source], rotation=40, ha="left")
    axes.set_yticks(range(len(target)), [_label(record.target, part) for part in target])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks([at - 0.5 for at in range(1, len(source))], minor=True)
    axes.set_yticks([at - 0.5 for at in range(1, len(target))], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    _write_numbers(axes, weights)
    if destination is not None:
        with replaced_file(destination) as fresh:
            figure.savefig(fresh, dpi=150, format=destination.suffix[1:])
    return figure


def _write_numbers(axes: Any, weights: Tensor) -> None:
    for row, column in (weights >= _SHOWN).nonzero().tolist():
        weight = float(weights[row, column])
        color = "white" if weight > 0.55 else "#08306b"
        axes.text(column, row, f"{weight:.1f}", ha="center", va="center", fontsize=8, color=color)


def _words(tokens: list[str]) -> list[range]:
    """Return the tokens of each word; a token that starts with a space, and a special token, starts one."""
    if any(SPACE in token for token in tokens):
        starts = [at for at, token in enumerate(tokens) if at == 0 or token.startswith((SPACE, "<2", "</"))]
    else:  # text that was cut before, with @@ where a word goes on
        starts = [at for at in range(len(tokens)) if at == 0 or not tokens[at - 1].endswith("@@")]
    return [range(first, last) for first, last in zip(starts, [*starts[1:], len(tokens)], strict=True)]


def _label(tokens: list[str], word: range) -> str:
    # A dollar would begin a formula, to matplotlib.
    return "".join(tokens[at] for at in word).replace(SPACE, "").replace("$", r"\$")


def _by_word(weights_TS: Tensor, source: list[range], target: list[range]) -> Tensor:
    rows = [weights_TS[word.start : word.stop].mean(0) for word in target]
    columns = [[float(row[word.start : word.stop].sum()) for word in source] for row in rows]
    return weights_TS.new_tensor(columns)
