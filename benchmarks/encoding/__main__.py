"""`make bench-encoding DATA=FILE.tsv`: writes benchmarks/results/encoding-DATE.md.

Encoding a corpus into shards on disk, in turns with calling the tokenizers library in batches and keeping nothing.
"""

import datetime
import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from benchmarks.alternating import machine
from regard.data import Corpus, Dates, TabSeparated, Tokenizer, encode_corpus
from regard.tasks.text2text import TextToTextTask

ROUNDS, BATCH = 7, 10_000


def main() -> None:
    """Measure both in turns and write the page."""
    corpus: Corpus = TabSeparated(path=Path(sys.argv[1])) if len(sys.argv) > 1 else Dates(count=200_000)
    name = Path(sys.argv[1]).name if len(sys.argv) > 1 else "dates"
    pairs = list(corpus.pairs())
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), vocab_size=8000)
    ours, direct = [], []
    for _ in range(ROUNDS):
        direct.append(_direct(corpus, tokenizer))
        with tempfile.TemporaryDirectory() as cache:
            began = time.perf_counter()
            encode_corpus(corpus, TextToTextTask(), tokenizer, tokenizer, Path(cache))
            ours.append(time.perf_counter() - began)
    ratios = [a / b for a, b in zip(ours, direct, strict=True)]
    lines = [
        f"# Encoding, {datetime.date.today().isoformat()}",
        "",
        f"`python -m benchmarks.encoding` made this file. {machine()}.",
        "",
        f"{name}: {len(pairs):,} pairs, BPE with 8,000 tokens, {ROUNDS} rounds in turns, medians. The library: the",
        f"file is read and given to `encode_batch_fast` by {BATCH:,}, and the token numbers are taken out and dropped.",
        "",
        "| | pairs/s |",
        "| --- | --- |",
        f"| regard, into shards on disk, the file hashed | {len(pairs) / statistics.median(ours):,.0f} |",
        f"| the tokenizers library, in batches | {len(pairs) / statistics.median(direct):,.0f} |",
        "",
        f"Time of regard over the library's: {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}).",
    ]
    path = Path(__file__).parent.parent / "results" / f"encoding-{datetime.date.today().isoformat()}.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


def _direct(corpus: Corpus, tokenizer: Tokenizer) -> float:
    backend = tokenizer._backend
    began = time.perf_counter()
    stream = corpus.pairs()
    while chunk := list(islice(stream, BATCH)):
        for side in zip(*chunk, strict=True):
            for encoded in backend.encode_batch_fast(list(side), add_special_tokens=False):
                encoded.ids  # noqa: B018
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
