"""`regard explain`: attention, step by step, with the numbers."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from torch import Tensor

    from regard.inspection import Explanation, Step

_MATRIX = 'Rows of numbers, "1 0; 0 1", or a file of them.'


def explain(
    sentence: Annotated[str | None, typer.Argument(help="A sentence to attend over, in place of the example.")] = None,
    x: Annotated[str | None, typer.Option("--x", help=f"The input X, one row a token. {_MATRIX}")] = None,
    w_q: Annotated[str | None, typer.Option("--w-q", help="W_Q; the identity unless given.")] = None,
    w_k: Annotated[str | None, typer.Option("--w-k", help="W_K; the identity unless given.")] = None,
    w_v: Annotated[str | None, typer.Option("--w-v", help="W_V; the identity unless given.")] = None,
    causal: Annotated[bool, typer.Option(help="Apply a causal mask.")] = False,
    scale: Annotated[float | None, typer.Option(help="In place of 1/√d_k; 1 leaves scores unscaled.")] = None,
    d_model: Annotated[int | None, typer.Option(help="The width of a sentence's embeddings; 4 unless given.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="For the random embeddings and projections of a sentence; 0 unless given.")
    ] = None,
) -> None:
    """Explain self-attention step by step: symbols, shapes, numbers. Without arguments, a worked example."""
    from rich.console import Console

    from regard.errors import InputError
    from regard.inspection import EXAMPLE, explain_matrices, explain_sentence, worked_example

    matrices = {"--x": x, "--w-q": w_q, "--w-k": w_k, "--w-v": w_v}
    read = {name: None if text is None else _matrix(name, text) for name, text in matrices.items()}
    changed = causal or scale is not None or any(text is not None for text in matrices.values())
    if sentence is None and (d_model is not None or seed is not None):
        raise InputError(f"{'--seed' if d_model is None else '--d-model'} is for a sentence, and there is none")
    if sentence is not None:
        if any(text is not None for text in matrices.values()):
            raise InputError("explain takes a sentence or matrices, not both")
        width = 4 if d_model is None else d_model
        told = explain_sentence(sentence, d_model=width, seed=seed or 0, causal=causal, scale=scale)
    elif changed:
        X = EXAMPLE if read["--x"] is None else read["--x"]
        told = explain_matrices(X, read["--w-q"], read["--w-k"], read["--w-v"], causal=causal, scale=scale)
    else:
        told = worked_example()
    console = Console(highlight=False)
    with console.capture() as printed:
        show(told, console)
    sys.stdout.write(printed.get())  # not by the console, which exits with 1 where nobody reads


def _matrix(name: str, text: str) -> "Tensor":
    """Read rows of numbers from the argument itself or from the file that it names."""
    import torch

    from regard.errors import InputError

    origin = name
    if _is_file(text):
        origin = f"{name}, {text}"
        try:
            text = Path(text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{origin} cannot be read: {error}") from None
    lines = [line.replace(",", " ").split() for line in text.replace(";", "\n").splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{origin} holds no numbers")
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append([float(cell) for cell in line])
        except ValueError:
            nor = "" if origin != name else ", and there is no file of that name"
            raise InputError(f"{origin}: row {number}, {' '.join(line)!r}, is not all numbers{nor}") from None
        if len(rows[-1]) != len(rows[0]):
            raise InputError(f"{origin}: row {number} has {len(rows[-1])} numbers, the first row {len(rows[0])}")
    return torch.tensor(rows, dtype=torch.float64)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a long matrix is no name of a file
        return False


def show(told: "Explanation", console: "Console") -> None:
    """Print every step as a heading and a table, the weights as a heat map."""
    console.print("\n[bold]softmax(QKᵀ/√d_k + M) V[/], step by step\n")
    if told.premise:
        console.print(told.premise, style="italic", end="\n\n")
    for number, step in enumerate(told.steps, 1):
        shape = f"{step.shape} = {tuple(step.value.shape)}"
        console.print(f"[bold]{number}. {step.symbol}[/] = {step.equation}   [dim]{shape}[/]   {step.meaning}")
        table, width = _table(step, told.tokens), console.width
        # Wider than the terminal if need be: a number that is cut off is worse than a line that wraps.
        console.width = max(width, console.measure(table, options=console.options.update(max_width=1000)).maximum)
        console.print(table)
        console.width = width
        console.print()
    if told.remark:
        console.print(told.remark, style="italic", end="\n\n")


def _table(step: "Step", tokens: list[str]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=step.over_keys, pad_edge=True, padding=(0, 1))
    table.add_column("", justify="right", style="cyan")
    for column in range(step.value.size(1)):
        header = Text(tokens[column]) if step.over_keys else Text("")  # as text: words may look like markup
        table.add_column(header, justify="right", header_style="cyan", no_wrap=True)
    for token, row in zip(tokens, step.value.tolist(), strict=True):
        table.add_row(Text(token), *(Text(_number(cell), style=_shade(cell, step)) for cell in row))
    return table


def _number(value: float) -> str:
    if value == float("-inf"):
        return "-∞"
    return f"{value:.3f}".replace("-0.000", "0.000")


def _shade(value: float, step: "Step") -> str:
    """Show weights as a heat map where the terminal has colours."""
    if step.symbol != "weights":
        return ""
    if value == 0.0:
        return "dim"
    return f"black on rgb({255 - round(195 * value)},{255 - round(95 * value)},255)"
