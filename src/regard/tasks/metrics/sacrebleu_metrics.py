"""BLEU and chrF as sacrebleu computes them, with its own bootstrap."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from regard.tasks.metrics.metric import References, Score

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as SacrebleuMetric


class _Sacrebleu(ABC):
    """A metric of sacrebleu."""

    name: str

    def score(self, texts: Sequence[str], references: References, *, bootstrap: int = 0) -> Score:
        """Return the score of texts, with sacrebleu's interval (μ ± half its width) if there are at least 2 samples."""
        metric = self._metric()
        # sacrebleu takes first references, second references …, None where a text has fewer.
        streams = [list(stream) for stream in zip_longest(*references)]
        result = metric.corpus_score(list(texts), streams, n_bootstrap=max(bootstrap, 1))
        interval = None
        if bootstrap > 1:
            interval = (float(result._mean - result._ci), float(result._mean + result._ci))
        return Score(float(result.score), str(metric.get_signature()), str(result), interval)

    @abstractmethod
    def _metric(self) -> "SacrebleuMetric":
        """Return the metric; sacrebleu is costly to import, and imported here alone."""


class Bleu(_Sacrebleu):
    """BLEU (Papineni et al. 2002); of `tokenized` texts, over words between spaces."""

    name = "bleu"

    def __init__(self, *, tokenized: bool = False) -> None:
        self._tokenized = tokenized

    def _metric(self) -> "SacrebleuMetric":
        from sacrebleu.metrics.bleu import BLEU

        return BLEU(tokenize="none", force=True) if self._tokenized else BLEU()


class Chrf(_Sacrebleu):
    """ChrF (Popović 2015)."""

    name = "chrf"

    def _metric(self) -> "SacrebleuMetric":
        from sacrebleu.metrics.chrf import CHRF

        class FloatChrf(CHRF):
            """Has float scores: CHRF's are float32, but float where nothing matches, and their mean is a TypeError."""

            def _compute_score_from_stats(self, stats: list[Any]) -> Any:
                result = super()._compute_score_from_stats(stats)
                result.score = float(result.score)
                return result

        return FloatChrf()
