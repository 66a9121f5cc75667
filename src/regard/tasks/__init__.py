"""Tasks: what a model is for, from examples to answers and their scores."""

from regard.tasks.metrics import MetricName as MetricName
from regard.tasks.metrics import Score as Score
from regard.tasks.metrics import score as score
from regard.tasks.task import Task as Task
