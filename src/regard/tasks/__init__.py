"""Tasks: what a model is for, from examples to answers and their scores."""

from regard.tasks.evaluation import evaluate_examples as evaluate_examples
from regard.tasks.metrics import MeanMetric as MeanMetric
from regard.tasks.metrics import Metric as Metric
from regard.tasks.metrics import MetricName as MetricName
from regard.tasks.metrics import Score as Score
from regard.tasks.metrics import register as register
from regard.tasks.metrics import score as score
from regard.tasks.task import Task as Task
