"""`make bench-decode DATA=test.tsv`: writes benchmarks/results/decoding-DATE.md.

The table has English in its first column and German in its second; the models translate German into English.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path

import torch

import regard
from benchmarks.alternating import KEEP_MEMORY, Contestant, alternate, machine, ratios
from benchmarks.decoding.job import ENOUGH
from benchmarks.decoding.where import where_time_goes
from benchmarks.environments import python_of
from regard import models
from regard.data import TabSeparated
from regard.export.ctranslate2 import write_ctranslate2
from regard.tasks import score

ROUNDS = 3
SENTENCES = 500
ALONE = 60  # of them, one by one
ROOT = str(Path(__file__).parents[2])


def main() -> None:
    """Run everyone with each model, by beam and greedily, and write the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path, help="English and German, a tab between")
    parser.add_argument("models", nargs="*", default=["shipped=de-en"], help="NAME=DIRECTORY")
    given = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    lines = [
        f"# Decoding, {datetime.date.today().isoformat()}",
        "",
        f"`make bench-decode DATA=test.tsv` made this file. {machine()}, ctranslate2 4.8.4, joeynmt 2.3.0; "
        f"{threads} cores.",
        "",
        f"German into English, {SENTENCES} real sentences that no model saw in training, the same weights for all.",
        "Fresh processes in turns, each peer in an environment of its own; loading and a first batch are not counted.",
        "Output tokens a second, ends counted and padding not: medians of the rounds (slowest-fastest), each the",
        f"median of up to five passes, enough for {ENOUGH:.0f} seconds. `ratio`: how",
        "many times as fast the best row of regard is, the median of the rounds' own ratios. `alone`: milliseconds for",
        f"one sentence by itself, the median of {ALONE}. `a×b`: a workers of b threads. Joey NMT's length",
        "penalty is another one. All are told to keep freed memory. Batches are 64 sentences of about the same length;",
        "regard takes as many as fit a budget of tokens. CTranslate2 has its weights from `regard export`: in int8",
        "in 7 bits, which keeps its products from overflowing where there is no VNNI, and its BLEU from falling.",
    ]
    with tempfile.TemporaryDirectory() as directory:
        for named in given.models:
            name, _, model = named.partition("=")
            path = models.path_of(model) if model in models.names() else Path(model)
            lines += _model(name, path, given.data, Path(directory) / name, threads)
    path = Path(__file__).parent.parent / "results" / f"decoding-{datetime.date.today().isoformat()}.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))


def _model(name: str, path: Path, data: Path, work: Path, threads: int) -> list[str]:
    pipeline = regard.load(path, precision="float")
    config = pipeline.model.config
    work.mkdir()
    # Its weights as it has them, in floats, for those who cannot read halves.
    pipeline.model.save(work / "regard")
    pipeline.target.save(work / "regard" / "tokenizer.json")
    for kind in ("float32", "int8"):
        (work / kind).mkdir()
        write_ctranslate2(pipeline, work / kind, quantized=kind == "int8")
    pairs = list(TabSeparated(path=data, source_column=2, target_column=1).pairs())[:SENTENCES]
    sources = [pipeline.encoded(source, "en") for source, _ in pairs]
    count = sum(parameter.numel() for parameter in pipeline.model.parameters())
    lines = [
        "",
        f"## {name}: {config.encoder_layers}+{config.decoder_layers} layers, d_model {config.d_model}, "
        f"vocabulary {config.vocab_size:,}, {count / 1e6:.1f} M parameters",
    ]
    for beam in (5, 1):
        job = work / f"beam-{beam}.json"
        content = {"model": str(work / "regard"), "exported": str(work), "sources": sources}
        job.write_text(json.dumps({**content, "beam": beam, "one_by_one": ALONE}), encoding="utf-8")
        contestants = _contestants(job, work, threads)
        alternate(contestants, ROUNDS, threads)
        bleu = {
            one.name: score(
                "bleu",
                [pipeline.target.decode(row) for row in json.loads(_output(work, one).read_text(encoding="utf-8"))],
                [target for _, target in pairs],
            ).value
            for one in contestants
        }
        lines += ["", f"### {'Greedy' if beam == 1 else f'Beam {beam}'}", "", *_table(contestants, bleu)]
    lines += ["", "### Where a step's time goes", "", *where_time_goes(path, sources[:200])]
    return lines


def _contestants(job: Path, work: Path, threads: int) -> list[Contestant]:
    shapes = [(1, threads), (threads, 1)]
    listed = [
        *((f"regard {kind}", "regard", [kind, str(threads)]) for kind in ("float", "int8")),
        *(
            (f"CTranslate2 {kind} {a}×{b}", "ctranslate2", [kind, str(a), str(b), "64"])
            for kind in ("float32", "int8")
            for a, b in shapes
        ),
        ("Hugging Face generate", "huggingface", [str(threads), "64"]),
        ("Joey NMT", "joeynmt", [str(threads), "64"]),
    ]
    environments = {"ctranslate2": "ctranslate2", "huggingface": "marian", "joeynmt": "joeynmt"}
    return [
        Contestant(
            name,
            [f"benchmarks.decoding.with_{peer}", str(job), str(work / f"{name}.out"), *variant],
            {"PYTHONPATH": ROOT, **KEEP_MEMORY},
            python_of(environments[peer]) if peer in environments else sys.executable,
        )
        for name, peer, variant in listed
    ]


def _output(work: Path, contestant: Contestant) -> Path:
    return work / f"{contestant.name}.out"


def _table(contestants: list[Contestant], bleu: dict[str, float]) -> list[str]:
    ours = [one for one in contestants if one.name.startswith("regard")]
    best = min(ours, key=lambda one: one.median("seconds"))
    quick = min(ours, key=lambda one: one.median("alone"))
    lines = ["| | tokens/s | ratio | alone, ms | ratio | BLEU |", "| --- | --- | --- | --- | --- | --- |"]
    for one in contestants:
        speeds = sorted(row["tokens"] / row["seconds"] for row in one.rounds)
        middle, low, high = ratios(best, one, "seconds")
        alone = ratios(quick, one, "alone")
        lines.append(
            f"| {one.name} | {speeds[len(speeds) // 2]:,.0f} ({speeds[0]:,.0f}-{speeds[-1]:,.0f}) "
            f"| {middle:.2f} ({low:.2f}-{high:.2f}) | {1000 * one.median('alone'):.1f} "
            f"| {alone[0]:.2f} ({alone[1]:.2f}-{alone[2]:.2f}) | {bleu[one.name]:.2f} |"
        )
    return lines


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
