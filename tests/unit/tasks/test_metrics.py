import pytest
import sacrebleu

from regard.errors import InputError
from regard.tasks import score

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


def test_texts_and_references_belong_together() -> None:
    with pytest.raises(InputError, match="2 texts cannot be scored against 1"):
        score("exact", TEXTS, REFERENCES[:1])
    with pytest.raises(InputError, match="0 texts"):
        score("exact", [], [])


def test_an_interval_by_bootstrap() -> None:
    found = score("bleu", TEXTS * 20, REFERENCES * 20, bootstrap=50)
    assert "μ = " in found.text
    assert "bs:50" in found.signature
    assert found.value == score("bleu", TEXTS * 20, REFERENCES * 20).value
    assert score("chrf", ["x"] * 3, ["y"] * 3, bootstrap=10).value == 0.0
