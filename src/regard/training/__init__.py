"""Training: the recipe, the loop, its state on disk, many processes."""

from regard.training.callbacks import Callback as Callback
from regard.training.recipe import Run as Run
from regard.training.run_training import train as train
