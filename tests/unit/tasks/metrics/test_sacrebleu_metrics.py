import pytest
import sacrebleu

from regard.tasks import score
from tests.unit.tasks.metrics.pairs import random_pairs

TEXTS = ["the cat sat on the mat .", "a dog , barks"]
REFERENCES = ["the cat sat on a mat .", "the dog barks !"]


def test_scores_are_sacrebleus() -> None:
    expected = sacrebleu.corpus_bleu(TEXTS, [REFERENCES])
    assert score("bleu", TEXTS, REFERENCES).value == expected.score
    expected = sacrebleu.corpus_bleu(TEXTS, [REFERENCES], tokenize="none", force=True)
    found = score("bleu", TEXTS, REFERENCES, tokenized=True)
    assert found.value == expected.score
    assert "tok:none" in found.signature
    assert score("chrf", TEXTS, REFERENCES).value == sacrebleu.corpus_chrf(TEXTS, [REFERENCES]).score


def test_random_pairs_score_as_in_sacrebleu_alone_and_together() -> None:
    texts, references = random_pairs(1000)
    first = [reference for (reference,) in references]
    assert score("bleu", texts, first).value == sacrebleu.corpus_bleu(texts, [first]).score > 0
    assert score("chrf", texts, first).value == sacrebleu.corpus_chrf(texts, [first]).score > 0
    for text, reference in zip(texts, first, strict=True):
        assert score("bleu", [text], [reference]).value == sacrebleu.corpus_bleu([text], [[reference]]).score
        assert score("chrf", [text], [reference]).value == sacrebleu.corpus_chrf([text], [[reference]]).score


def test_several_references_are_those_of_sacrebleu() -> None:
    texts, references = random_pairs(1000, references=3)
    streams = [[some[number] if number < len(some) else None for some in references] for number in range(3)]
    bleu = score("bleu", texts, references)
    assert bleu.value == sacrebleu.BLEU().corpus_score(texts, streams).score  # type: ignore[arg-type]
    assert "nrefs:var" in bleu.signature
    chrf = score("chrf", texts, [list(some) for some in references])
    assert chrf.value == sacrebleu.CHRF().corpus_score(texts, streams).score  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_an_interval_by_bootstrap(metric: str) -> None:
    found = score(metric, TEXTS * 20, REFERENCES * 20, bootstrap=50)
    assert found.interval is not None
    low, high = found.interval
    middle, half = (low + high) / 2, (high - low) / 2
    assert f"(μ = {middle:.2f} ± {half:.2f})" in found.text
    assert low < found.value < high
    assert "bs:50" in found.signature
    assert found.value == score(metric, TEXTS * 20, REFERENCES * 20).value
    assert found == score(metric, TEXTS * 20, REFERENCES * 20, bootstrap=50)
    assert score(metric, TEXTS, REFERENCES).interval is None


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_an_interval_where_some_or_all_samples_have_nothing_in_common_with_the_references(metric: str) -> None:
    found = score(metric, ["x"] * 3, ["y"] * 3, bootstrap=10)
    assert (found.value, found.interval) == (0.0, (0.0, 0.0))
    some = score(metric, ["a b c d e", "x"], ["a b c d e", "y"], bootstrap=50)
    assert some.interval is not None
    assert 0.0 <= some.interval[0] < some.interval[1]
