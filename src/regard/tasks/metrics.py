"""How good texts are, beside the ones that people wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from regard.errors import InputError

MetricName = Literal["bleu", "chrf", "exact"]


@dataclass(frozen=True)
class Score:
    """A score and how it was computed."""

    value: float
    signature: str
    """What makes it comparable: the metric's own statement of its settings."""
    text: str
    """The score in the metric's own words."""

    @property
    def name(self) -> str:
        """What the metric calls itself: BLEU, chrF2, exact."""
        return self.text.partition(" ")[0]


def score(
    metric: MetricName,
    texts: Sequence[str],
    references: Sequence[str],
    *,
    tokenized: bool = False,
    bootstrap: int = 0,
) -> Score:
    """Score texts against one reference each, from 0 to 100.

    >>> score("exact", ["2027-03-03", "2027-03-04"], ["2027-03-03", "2027-03-05"]).value
    50.0

    `tokenized` says that texts are cut into words already, so that BLEU does not cut them again. With `bootstrap`, the
    score's own words have the interval in which 95 of 100 draws of as many sentences lie, out of so many draws.
    """
    if len(texts) != len(references) or not texts:
        raise InputError(f"{len(texts)} texts cannot be scored against {len(references)} references")
    if metric == "exact":
        same = 100.0 * sum(a == b for a, b in zip(texts, references, strict=True)) / len(texts)
        return Score(same, "exact", f"exact = {same:.2f}")
    # Costly to import, and needed here alone.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu = BLEU(tokenize="none", force=True) if tokenized else BLEU()
    computed = bleu if metric == "bleu" else CHRF()
    try:
        result = computed.corpus_score(list(texts), [list(references)], n_bootstrap=max(bootstrap, 1))
    except TypeError:  # its mean of draws fails where some of them have nothing in common with the references
        result = computed.corpus_score(list(texts), [list(references)])
    return Score(float(result.score), str(computed.get_signature()), str(result))
