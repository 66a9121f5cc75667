"""Score models of German and English on what people type, on their own test set, and on sets from outside.

    python -m benchmarks.translation --data DIR --multi30k DIR --model before=PATH --model after=PATH --results FILE

`--data` is what `benchmarks.translation.prepare` and `benchmarks.translation.words` wrote; `--multi30k` holds
test_2016_flickr.de and .en, plain or gzip.
"""

import time
from argparse import ArgumentParser
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import torch

import regard
from benchmarks.translation.generated import KINDS, STYLES, generated
from regard.data.corpora import read_lines
from regard.tasks import score
from regard.training.environment import cpu_name

LANGUAGES = {"de": "en", "en": "de"}
GENERATED = 1000
"""Sentences in each language."""


@dataclass
class Scores:
    """What one model scored."""

    bleu: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """BLEU and chrF by test set and source language."""
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many numbers and addresses came through, of how many, by kind and by style."""
    lost: list[tuple[str, str]] = field(default_factory=list)
    """Sentences that lost one, and their translations."""
    words: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many words by themselves were translated as expected, up to case, of how many, by source language."""
    seconds: float = 0.0
    """For its own test set, both ways."""


def test_sets(data: Path, multi30k: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the pairs of each set, English first."""
    table = {
        name: [(line.split("\t")[0], line.split("\t")[1]) for line in read_lines(data / directory / "test.tsv")]
        for name, directory in (("Tatoeba", "tatoeba"), ("software, held out by package", "software"))
    }
    sides = [list(read_lines(_found(multi30k / f"test_2016_flickr.{language}"))) for language in ("en", "de")]
    return table | {"Multi30k test_2016_flickr": list(zip(*sides, strict=True))}


def _found(path: Path) -> Path:
    return path if path.exists() else path.with_name(f"{path.name}.gz")


def held_out_words(data: Path) -> dict[str, list[tuple[str, str]]]:
    """Return words by themselves and their translations, by source language."""
    return {
        source: [(word, other) for word, _, other in (line.partition("\t") for line in read_lines(path))]
        for source, target in LANGUAGES.items()
        for path in (data / "words" / f"test-2{target}.tsv",)
    }


def scored(
    model: regard.Translator, sets: dict[str, list[tuple[str, str]]], words: dict[str, list[tuple[str, str]]]
) -> Scores:
    """Translate everything with a model."""
    scores = Scores()
    for source, target in LANGUAGES.items():
        for name, pairs in sets.items():
            texts = [pair[source == "de"] for pair in pairs]
            references = [pair[target == "de"] for pair in pairs]
            forms = {name: texts}
            if name == "Tatoeba":
                forms |= {f"{name}, all caps": [text.upper() for text in texts]}
                forms |= {f"{name}, no caps": [text.lower() for text in texts]}
            for form, lines in forms.items():
                began = time.perf_counter()
                made = [one.text for one in model.translate(lines, to=target)]
                scores.seconds += time.perf_counter() - began if form == "Tatoeba" else 0.0
                scores.bleu[form, source] = (
                    score("bleu", made, references).value,
                    score("chrf", made, references).value,
                )
        expected = [other.lower() for _, other in words[source]]
        made = [
            one.text.lower().rstrip(".!?") for one in model.translate([word for word, _ in words[source]], to=target)
        ]
        scores.words[source] = sum(map(str.__eq__, made, expected)), len(expected)
        sentences = generated(source, GENERATED)
        counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for sentence, found in zip(sentences, model.translate([one.text for one in sentences], to=target), strict=True):
            kept = sentence.kept(found.text)
            if kept < len(sentence.items):
                scores.lost.append((sentence.text, found.text))
            for key in (sentence.kind, sentence.style, "all"):
                counts[key][0] += kept
                counts[key][1] += len(sentence.items)
        for key, (kept, total) in counts.items():
            before = scores.kept.get(key, (0, 0))
            scores.kept[key] = before[0] + kept, before[1] + total
    return scores


def report(found: dict[str, Scores], command: str) -> str:
    """Write the page of results."""
    models = list(found)
    first = found[models[0]]
    lines = [
        f"# de-en on what people type, {date.today().isoformat()}",
        "",
        f"`{command}`",
        "",
        f"On {cpu_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}. Beam 5, length penalty 1, as",
        "`regard translate` runs it. BLEU / chrF:",
        "",
        f"| test set | direction | {' | '.join(models)} |",
        f"|---|---|{'---|' * len(models)}",
    ]
    for name, source in sorted(first.bleu):
        cells = (f"{bleu:.2f} / {chrf:.2f}" for bleu, chrf in (found[model].bleu[name, source] for model in models))
        lines.append(f"| {name} | {source} → {LANGUAGES[source]} | {' | '.join(cells)} |")
    lines += [
        "",
        "Words by themselves, held out of training (though they occur in its sentences), that are translated as the",
        "corpora do most often, up to case:",
        "",
        f"| direction | words | {' | '.join(models)} |",
        f"|---|---|{'---|' * len(models)}",
    ]
    for source, (_, total) in first.words.items():
        counts = (str(found[model].words[source][0]) for model in models)
        lines.append(f"| {source} → {LANGUAGES[source]} | {total} | {' | '.join(counts)} |")
    lines += [
        "",
        f"Numbers and addresses of {2 * GENERATED:,} generated sentences that came through, unchanged or localized:",
        "",
        f"| of | items | {' | '.join(models)} |",
        f"|---|---|{'---|' * len(models)}",
    ]
    for key in (*KINDS, *STYLES, "all"):
        shares = (f"{100 * found[model].kept[key][0] / found[model].kept[key][1]:.1f} %" for model in models)
        lines.append(f"| {key} | {first.kept[key][1]:,} | {' | '.join(shares)} |")
    times = ", ".join(f"{model} {found[model].seconds:.1f} s" for model in models)
    lines += ["", f"Time for Tatoeba's test set, both ways: {times}.", ""]
    for model in models:
        lines += [f"What {model} lost, the first ten:", ""]
        lines += [f"- {source} → {made}" for source, made in found[model].lost[:10]] + [""]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    for option in ("data", "multi30k", "results"):
        parser.add_argument(f"--{option}", type=Path, required=True)
    parser.add_argument("--model", action="append", required=True, help="NAME=PATH, or the name of a packaged model")
    options = parser.parse_args()
    results = {}
    for named in options.model:
        title, _, where = named.partition("=")
        sets, words = test_sets(options.data, options.multi30k), held_out_words(options.data)
        results[title] = scored(regard.load(where or title), sets, words)
    names = " ".join(f"--model {named.partition('=')[0]}=PATH" for named in options.model)
    page = report(results, f"python -m benchmarks.translation --data DIR --multi30k DIR {names} --results FILE")
    options.results.write_text(page, encoding="utf-8")
    print(page)
