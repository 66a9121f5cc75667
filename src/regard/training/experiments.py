"""What can be reproduced: a corpus, recipes, test sets, and what was published."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regard.data import ParallelFiles, TabSeparated
from regard.data.corpora import Corpus
from regard.data.splits import split_pairs, write_split
from regard.errors import InputError


def _split(directory: Path) -> None:
    """Split the table of Tatoeba into train.tsv, valid.tsv and test.tsv, unless that is done."""
    if (directory / "train.tsv").exists():
        return
    found = split_pairs(TabSeparated(path=directory / "deu.txt").pairs(), valid=2000, test=2000)
    write_split(found, directory)


@dataclass(frozen=True)
class Experiment:
    """What it is trained on, and what it is scored on."""

    corpus: str
    presets: dict[str, str]
    """Recipes of the package, by what they are called here."""
    tests: Callable[[Path], dict[str, Corpus]]
    """The test sets in the corpus's directory."""
    published: str
    """What was published, with where."""
    beam: int = 5
    prepare: Callable[[Path], None] = lambda directory: None
    """What is done to the corpus's directory first."""


EXPERIMENTS = {
    "multi30k": Experiment(
        corpus="multi30k-bpe10k",
        presets={"published": "multi30k-published", "regard": "multi30k"},
        tests=lambda directory: {
            name: ParallelFiles(source=directory / f"{name}.en", target=directory / f"{name}.de")
            for name in ("test.2016", "test.2017", "test.coco")
        },
        published="Published: 41.02 BLEU on test.2016 (Transformer-Tiny, Wu et al. 2021, LividWo/Revisit-MMT).",
    ),
    "tatoeba": Experiment(
        corpus="tatoeba-de-en",
        presets={"regard": "tatoeba", "baseline": "tatoeba-baseline"},
        tests=lambda directory: {
            "de→en": TabSeparated(path=directory / "test.tsv", tag="<2en>", source_column=2, target_column=1),
            "en→de": TabSeparated(path=directory / "test.tsv", tag="<2de>"),
        },
        published="Neither side of a test pair is in the training part, up to case, spaces and outer punctuation.",
        prepare=_split,
    ),
}


def experiment_of(name: str) -> Experiment:
    """Return an experiment by its name."""
    if name not in EXPERIMENTS:
        raise InputError(f"{name!r} is not known; what can be reproduced: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
