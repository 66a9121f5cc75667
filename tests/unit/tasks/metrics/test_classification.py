from random import Random

import pytest

from regard.errors import InputError
from regard.tasks import score


def _macro_f1(texts: list[str], references: list[str]) -> float:
    """Macro F1 by its definition: precision and recall of each label, a quotient by zero being 0."""
    pairs = list(zip(texts, references, strict=True))
    f1s = []
    for label in {*texts, *references}:
        hits = sum(text == reference == label for text, reference in pairs)
        precision = hits / texts.count(label) if label in texts else 0.0
        recall = hits / references.count(label) if label in references else 0.0
        f1s.append(2 * precision * recall / (precision + recall) if hits else 0.0)
    return 100 * sum(f1s) / len(f1s)


@pytest.mark.parametrize("seed", range(50))
def test_macro_f1_is_the_mean_of_the_labels_f1(seed: int) -> None:
    random = Random(seed)
    labels = ["", "Straße", "東京", *"abcdef"][: random.randint(1, 9)]
    references = random.choices(labels, k=40)
    texts = [one if random.random() < 0.6 else random.choice([*labels, "other"]) for one in references]
    assert score("macro_f1", texts, references).value == pytest.approx(_macro_f1(texts, references), rel=1e-12)


def test_macro_f1_counts_labels_that_are_only_predicted() -> None:
    assert score("macro_f1", ["a", "a", "c"], ["a", "a", "a"]).value == pytest.approx(40.0)  # (0.8 + 0) / 2


def test_macro_f1_takes_one_label_for_each_text() -> None:
    with pytest.raises(InputError, match="macro_f1 takes one label for each text; text 2 has 2"):
        score("macro_f1", ["a", "b"], ["a", ["b", "c"]])


def test_accuracy_counts_any_acceptable_label() -> None:
    assert score("accuracy", ["a", "b", "b ", "d"], ["a", ["c", "b"], "b", "x"]).value == 50.0
    assert score("exact", ["a", "b", "b ", "d"], ["a", ("c", "b"), "b", "x"]).signature == "exact"
