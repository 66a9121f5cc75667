"""Documents of up to 20,000 tokens, summarized: `python -m benchmarks.tasks.long_document --out DIR`.

A small summarizer is trained for a moment on generated documents: only its memory and its time are of interest here.
One with a window in its encoder, one with exact attention; each document is a `regard summarize` of its own.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

import regard
from benchmarks.pages import table, write_page
from benchmarks.tasks.runs import parser_of
from benchmarks.variations.loop import once
from regard.training import Run

WORDS = (1_250, 2_500, 5_000, 10_000, 20_000)
ENCODERS = {"window of 128": '{ encoder = { pattern = { kind = "window", size = 128 } } }', "exact": "{}"}
RUN = """
task = "summarization"
data.train = [{{ kind = "jsonl", path = "documents.jsonl" }}]
tokenizer.vocab_size = 600
training = {{ steps = 20, batch_tokens = 2048 }}
[model]
preset = "small"
encoder_layers = 4
decoder_layers = 2
norm_placement = "pre"
positions = "rope"
attention = {attention}
"""
_NAMES = tuple(f"word{number}" for number in range(200))  # each becomes a token: the vocabulary is small


def document(words: int, draw: random.Random) -> str:
    """Return words at random."""
    return " ".join(draw.choices(_NAMES, k=words))


def trained(out: Path, name: str) -> Path:
    """Train a model for a few steps."""
    directory = out / name.replace(" ", "-")
    if not (directory / "model.safetensors").exists():
        draw = random.Random(1)
        rows = [{"document": document(60, draw), "summary": document(6, draw)} for _ in range(200)]
        (out / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        regard.train(Run.from_toml(RUN.format(attention=ENCODERS[name]), base=out.resolve()), directory)
    return directory


def measured(model: Path, words: int, precision: str) -> dict[str, Any]:
    """Summarize one document in a process of its own; return its tokens, its seconds and its peak memory."""
    text = document(words, random.Random(words))
    command = [sys.executable, "-m", "benchmarks.tasks.long_document", "--summarize", str(model), precision]
    began = time.perf_counter()
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "seconds": time.perf_counter() - began}


def summarize(model: str, precision: Literal["float", "int8"]) -> None:
    """Summarize standard input; print the number of tokens and the peak memory as JSON."""
    pipeline = regard.load(model, task="summarization", precision=precision)
    text = sys.stdin.read()
    pipeline.summarize("word1 word2")
    before = peak_megabytes()
    pipeline.summarize(text, max_length=16)
    print(json.dumps({"tokens": len(pipeline.source.encode(text)), "more": peak_megabytes() - before}))


def peak_megabytes() -> float:
    """Return the most memory that this process has held. (What `getrusage` says begins with that of its parent.)"""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def page(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the table."""
    longest = max(found.values(), key=len)
    rows = []
    for name, points in found.items():
        cells = [f"{one['more']:,.0f} ({one['seconds']:.1f})" for one in points]
        rows.append([name, *cells, *[""] * (len(longest) - len(points))])
    return [
        "Peak memory of a process that summarizes one document (4 + 2 layers, d_model 256, rotary positions), in MB",
        "above what it takes for a document of two words; in brackets, seconds with the start of the process.",
        "",
        *table(["tokens", *(f"{one['tokens']:,}" for one in longest)], rows),
    ]


def main() -> None:
    """Train the two models, measure, and write the page."""
    arguments = parser_of(__doc__).parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, lengths in (("window of 128", WORDS), ("exact", WORDS[:3])):
        model = trained(arguments.out, name)
        for precision in ("float", "int8"):
            path = arguments.out / f"{model.name}-{precision}.json"
            points = once(
                path, lambda m=model, p=precision, n=lengths: {"points": [measured(m, words, p) for words in n]}
            )
            found[f"{name}, {precision}"] = points["points"]
    command = "python -m benchmarks.tasks.long_document --out DIR"
    write_page(arguments.results, "long-document", "Long documents, summarized", command, page(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--summarize"]:
        summarize(sys.argv[2], "int8" if sys.argv[3] == "int8" else "float")
    else:
        main()
