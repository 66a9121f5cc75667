"""Scoring by name: the metrics there are, and those that are added."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Literal, TypeVar

from regard.errors import InputError, shown
from regard.tasks.metrics.bootstrap import FunctionMetric
from regard.tasks.metrics.classification import ACCURACY, EXACT, MACRO_F1
from regard.tasks.metrics.code_translation import CODE_BLEU4, CODE_EXACT
from regard.tasks.metrics.metric import Metric, MetricFunction, Score
from regard.tasks.metrics.rouge import Rouge
from regard.tasks.metrics.sacrebleu_metrics import Bleu, Chrf
from regard.tasks.metrics.squad import SQUAD_EXACT, SQUAD_F1

MetricName = Literal[
    "bleu",
    "chrf",
    "exact",
    "rouge1",
    "rouge2",
    "rougeL",
    "squad_exact",
    "squad_f1",
    "accuracy",
    "macro_f1",
    "code_bleu4",
    "code_exact",
]

_BLEU, _TOKENIZED_BLEU = Bleu(), Bleu(tokenized=True)
_ALL: tuple[Metric, ...] = (
    *(_BLEU, Chrf(), EXACT, Rouge("rouge1"), Rouge("rouge2"), Rouge("rougeL"), SQUAD_EXACT, SQUAD_F1),
    *(ACCURACY, MACRO_F1, CODE_BLEU4, CODE_EXACT),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
"""The metrics of this package by name."""

_registered: dict[str, Metric] = {}
_M = TypeVar("_M", bound=Metric | MetricFunction)


def register(metric: _M) -> _M:
    """Make a metric of your own known by its name, and return it: a decorator of functions, too.

    >>> @register
    ... def same_length(texts, references):
    ...     same = [len(text) in map(len, some) for text, some in zip(texts, references)]
    ...     return 100 * sum(same) / len(same)
    >>> score("same_length", ["abc", "d"], ["xyz", ["", "yz"]]).text
    'same_length = 50.00'
    """
    added = metric if isinstance(metric, Metric) else FunctionMetric(metric)
    if added.name in METRICS:
        raise InputError(f"the metric {added.name} comes with the package; a metric of your own needs another name")
    _registered[added.name] = added
    return metric


def registered_metrics() -> list[str]:
    """Return the names of the metrics that were added."""
    return list(_registered)


def find_metric(metric: str | Metric | MetricFunction) -> Metric:
    """Return the metric of a name; a metric is returned as it is, and a function as a metric."""
    if not isinstance(metric, str):
        return metric if isinstance(metric, Metric) else FunctionMetric(metric)
    known = METRICS | _registered
    if metric not in known:
        names = {name.lower(): name for name in known}
        near = get_close_matches(metric.lower(), names, n=1)
        hint = f"did you mean {names[near[0]]}?" if near else f"it is one of {', '.join(known)}"
        raise InputError(f"the metric {shown(metric)} is not known; {hint}")
    return known[metric]


def score(
    metric: str | Metric | MetricFunction,
    texts: Sequence[str],
    references: Sequence[str | Sequence[str]],
    *,
    tokenized: bool = False,
    bootstrap: int = 0,
) -> Score:
    """Score texts against a reference each, or against several acceptable ones, from 0 to 100.

    >>> score("exact", ["2027-03-03", "2027-03-04"], ["2027-03-03", "2027-03-05"]).value
    50.0
    >>> score("squad_f1", ["the Nile river", ""], [["Nile", "River Nile"], ""]).text
    'squad_f1 = 100.00'

    `metric` is a name (`MetricName`, or one that was registered), a `Metric`, or a function from texts and references
    to a number. The function gets the references of each text as a tuple, also where there is one.

    `tokenized` says that texts are cut into words already, so that BLEU does not cut them again. With `bootstrap`, the
    score has the interval in which 95 % of so many samples of the examples lie; it takes at least 2. The samples are
    the same each time.

    >>> score("exact", ["a", "b", "c", "d"] * 25, ["a", "b", "c", "x"] * 25, bootstrap=1000).text
    'exact = 75.00 (95 % interval: 66.97 to 83.00)'
    """
    if isinstance(texts, str) or isinstance(references, str):
        raise InputError("score takes a list of texts and a list of references; one of them is a string")
    if len(texts) != len(references) or not texts:
        raise InputError(f"{len(texts)} texts cannot be scored against {len(references)} references")
    if bootstrap < 0:
        raise InputError(f"bootstrap is {bootstrap}; expected a number of samples, or 0 for none")
    found = find_metric(metric)
    if tokenized and found is _BLEU:
        found = _TOKENIZED_BLEU
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise InputError(f"text {number:,} is {shown(text)}; expected a string")
    return found.score(
        texts, [_acceptable(number, some) for number, some in enumerate(references, 1)], bootstrap=bootstrap
    )


def _acceptable(number: int, references: str | Sequence[str]) -> tuple[str, ...]:
    """Return the references of a text as a tuple."""
    if isinstance(references, str):
        return (references,)
    if not isinstance(references, list | tuple) or not all(isinstance(one, str) for one in references):
        raise InputError(f"the reference of text {number:,} is {shown(references)}; expected a string or strings")
    if not references:
        raise InputError(f"text {number:,} has no reference; an unanswerable question has the empty one, ''")
    return tuple(references)
