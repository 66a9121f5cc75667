"""Tasks: what a text is worth."""

from regard.tasks.metrics import MeanMetric as MeanMetric
from regard.tasks.metrics import Metric as Metric
from regard.tasks.metrics import MetricName as MetricName
from regard.tasks.metrics import Score as Score
from regard.tasks.metrics import register as register
from regard.tasks.metrics import score as score
