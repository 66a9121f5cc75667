"""Noisy copies of sentences: beside the smooth ones, the same each time, and right in what they ask for."""

from pathlib import Path

from regard.data import TabSeparated
from regard.data.noise import noised

PAIRS = [(f"This is sentence number {n}.", f"Das ist Satz Nummer {n}.") for n in range(2000)]


def test_all_pairs_stay_and_a_share_comes_beside_them() -> None:
    found = list(noised(iter(PAIRS), 0.2))
    assert set(PAIRS) <= set(found)
    assert 300 < len(found) - len(PAIRS) < 500
    assert found == list(noised(iter(PAIRS), 0.2))
    assert list(noised(iter(PAIRS), 0.0)) == PAIRS


def test_every_form_comes_and_targets_stay_right() -> None:
    smooth = dict(PAIRS)
    kinds = set()
    for source, target in noised(iter(PAIRS), 0.5):
        if source in smooth:
            continue
        if source.count("This is") > 1:
            kinds.add("joined")
            assert source.count("This is") == target.count("Das ist")
        elif source == source.lower():
            kinds.add("bare" if not source.endswith(".") else "lower")
            assert target.startswith("Das ist")
        elif source == source.upper():
            kinds.add("upper")
            assert target.startswith("Das ist")
        elif source[-1].isdigit() and f"{source}." in smooth:
            kinds.add("endless")
            assert target == smooth[f"{source}."].removesuffix(".")
        else:
            kinds.add("strange")
            assert source.rpartition(". ")[2] == target.rpartition(". ")[2]
    assert kinds == {"joined", "lower", "upper", "endless", "bare", "strange"}


def test_a_corpus_is_roughened_as_it_is_read_for_training(tmp_path: Path) -> None:
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    corpus = TabSeparated(path=table, noise=0.1)
    assert list(corpus.read()) == PAIRS
    assert len(list(corpus.pairs())) > len(PAIRS)
