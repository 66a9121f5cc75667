"""`regard shortlist`: the words that may come of a source, learned from translations."""

from pathlib import Path
from typing import Annotated

import typer

from regard.errors import DataError, InputError

_PAIRS = 200_000


def shortlist(
    model: Annotated[Path, typer.Argument(help="A model directory; its shortlist.safetensors is written.")],
    source: Annotated[Path, typer.Option(help="A file of sources, such as those it was trained on.")],
    target: Annotated[Path, typer.Option(help="Their translations, a line for a line.")],
    to: Annotated[str | None, typer.Option(help="The language of the translations, if it writes several.")] = None,
    each: Annotated[int, typer.Option(min=1, help="Target tokens kept for each source token.")] = 100,
    always: Annotated[
        int, typer.Option(min=0, help="Target tokens that are always allowed: the most frequent.")
    ] = 1000,
    pairs: Annotated[int, typer.Option(min=1, help="Lines that are read, at most.")] = _PAIRS,
) -> None:
    """Learn which target tokens are likely for each source token, for `regard translate --shortlist`."""
    if not (model / "config.json").exists():  # a packaged model, which is found by its name, is not written into
        raise InputError(f"{model} is not the directory of a model, in which the shortlist would be written")
    from itertools import islice

    from regard.data import ParallelFiles
    from regard.data.lexicon import learn_lexicon
    from regard.decoding.shortlist import SHORTLIST, Shortlist
    from regard.pipelines import load

    pipeline = load(model, task="translation", precision="float")
    tag = pipeline.tag(to)
    encoded = (
        (pipeline.encoded(one, to), pipeline.target.encode(other))
        for one, other in islice(ParallelFiles(source=source, target=target).pairs(), pairs)
    )
    sizes = pipeline.source.vocab_size, pipeline.target.vocab_size
    lexicon = learn_lexicon(encoded, *sizes, each=each, always=always)
    if not len(lexicon.frequent_A):
        raise DataError(f"{target} has no words in it to learn from")
    before = {} if pipeline.shortlist is None else pipeline.shortlist.lexicons
    Shortlist({**before, tag: lexicon}).save(model / SHORTLIST)
    known = int((lexicon.likeliest_VK[:, 0] >= 0).sum())
    typer.echo(f"{model / SHORTLIST}: up to {each} words for each of {known:,} source tokens, and {always:,} always")
