"""Small runs to train in tests."""

from pathlib import Path

from regard.training import Run
from regard.training.callbacks import Callback, StepReport
from regard.training.validation import ValidationResult

SMALL = """
[data]
train = [{kind = "dates", count = 300}]
valid = [{kind = "dates", part = "valid", count = 20}]
cache = "cache"
[tokenizer]
vocab_size = 400
[model]
preset = "tiny"
d_model = 16
d_ff = 32
num_heads = 2
encoder_layers = 1
decoder_layers = 1
dropout = 0.2
attention_dropout = 0.1
[schedule]
peak = 3e-3
warmup = 5
[training]
steps = 14
batch_tokens = 400
threads = 1
[validation]
every = 6
[checkpoints]
every = 4
"""


def small_run(base: Path, *changes: str) -> Run:
    return Run.from_toml(SMALL, changes=changes, base=base)


class Notes(Callback):
    """A callback that remembers."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.reports: list[StepReport] = []
        self.judgements: list[tuple[int, ValidationResult, bool]] = []

    def on_message(self, text: str) -> None:
        self.sentences.append(text)

    def on_step(self, report: StepReport, total: int) -> None:
        self.reports.append(report)

    def on_validation(self, step: int, result: ValidationResult, best: bool) -> None:
        self.judgements.append((step, result, best))
