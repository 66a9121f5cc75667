"""HTML for notebooks. Everything that comes from a text is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

_LONGEST = 60  # tokens a side of a heat map

_CELL = "padding:2px 6px;border:0;text-align:"


def table_html(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values."""
    cells = "".join(
        f'<tr><th style="{_CELL}left">{escape(name)}</th><td style="{_CELL}left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table>{cells}</table>"


def ranking_html(texts: Sequence[tuple[str, float]]) -> str:
    """Return texts with their scores: the first as a paragraph, the others as a numbered list below it."""
    (best, score), *others = texts
    html = f'<p><b>{escape(best)}</b> <span style="opacity:.6">{score:.2f}</span></p>'
    if others:
        items = "".join(
            f'<li>{escape(text)} <span style="opacity:.6">{score:.2f}</span></li>' for text, score in others
        )
        html += f'<ol start="2">{items}</ol>'
    return html


def heat_map_html(source: Sequence[str], target: Sequence[str], weights_TS: Sequence[Sequence[float]]) -> str:
    """Return attention weights as a table: a row for each target token, a column for each source token."""
    left_out = max(0, len(source) - _LONGEST), max(0, len(target) - _LONGEST)
    source, target = source[:_LONGEST], target[:_LONGEST]
    header = "".join(f'<th style="{_CELL}center">{escape(token)}</th>' for token in source)
    rows = "".join(
        f'<tr><th style="{_CELL}right">{escape(token)}</th>{"".join(map(_heat, row[:_LONGEST]))}</tr>'
        for token, row in zip(target, weights_TS, strict=False)
    )
    html = f"<table><tr><th></th>{header}</tr>{rows}</table>"
    if any(left_out):
        html += f"<p>{left_out[0]} more source tokens and {left_out[1]} more target tokens are not shown.</p>"
    return html


def _heat(weight: float) -> str:
    color = "white" if weight > 0.55 else "#08306b"
    return f'<td style="{_CELL}center;background:rgba(8,81,156,{weight:.2f});color:{color}">{weight:.2f}</td>'
