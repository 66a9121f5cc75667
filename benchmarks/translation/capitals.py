"""The `capitals.json` of the model in the package: `python -m benchmarks.translation.capitals --data DIR --out FILE`.

`--data` is what `benchmarks.translation.prepare` wrote; it learns from the training part of Tatoeba.
"""

from argparse import ArgumentParser
from pathlib import Path

from regard.data.corpora import read_lines
from regard.data.truecasing import Truecaser

if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = [line.split("\t") for line in read_lines(options.data / "tatoeba" / "train.tsv")]
    Truecaser.learn({language: [row[side] for row in rows] for side, language in enumerate(("en", "de"))}).save(
        options.out
    )
