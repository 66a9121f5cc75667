"""Metrics that compare texts with references.

`score` is the entry; each file has one family of metrics.
"""

from regard.tasks.metrics.bootstrap import MeanMetric as MeanMetric
from regard.tasks.metrics.bootstrap import WeightedMetric as WeightedMetric
from regard.tasks.metrics.metric import Metric as Metric
from regard.tasks.metrics.metric import MetricFunction as MetricFunction
from regard.tasks.metrics.metric import Score as Score
from regard.tasks.metrics.scoring import METRICS as METRICS
from regard.tasks.metrics.scoring import MetricName as MetricName
from regard.tasks.metrics.scoring import find_metric as find_metric
from regard.tasks.metrics.scoring import register as register
from regard.tasks.metrics.scoring import registered_metrics as registered_metrics
from regard.tasks.metrics.scoring import score as score
from regard.tasks.metrics.squad import normalize_answer as normalize_answer
