"""What a run is made of: the contents of a run file, every field documented where it lives."""

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field

from regard import recipes
from regard.configs import Config
from regard.data import AnyCorpus
from regard.data.corpora import Corpus
from regard.data.tokenizer import TokenizerKind
from regard.decoding.settings import MOST_ROWS, LengthPenalty
from regard.devices import DeviceName
from regard.errors import ConfigError, DataError, InputError
from regard.model import TransformerConfig
from regard.model.config import Count, Flag, Rate, Size, Width
from regard.model.directory import CONFIG_FILE, read_config
from regard.tasks.known import Tasks
from regard.tasks.metrics import registered_metrics
from regard.tasks.task import Shape, Task
from regard.tasks.translation import TranslationTask
from regard.training.overrides import set_value
from regard.training.schedule import Positive, Schedule

AnyConfig = TypeVar("AnyConfig", bound=Config)
NotNegative = Annotated[float, Field(ge=0.0, strict=True)]


def current_softmax_gradient(value: object) -> object:
    """Return the current name of a `softmax_gradient` setting: early run files say "drawn" for "sampled"."""
    return "sampled" if value == "drawn" else value


class Data(Config):
    """Where the examples come from."""

    train: Annotated[tuple[AnyCorpus, ...], Field(min_length=1)]
    valid: tuple[AnyCorpus, ...] = ()
    """Validation data, by which a model is chosen; never a test set."""
    max_length: Size = 256
    """Pairs with a side of more tokens than this, its end and tag counted, are left out of training and counted.

    The windows and blocks that some tasks cut texts into are not.
    """
    cache: Path | None = None
    """Where encoded corpora are kept, found again by their content; the user's cache directory unless given."""


class Vocabulary(Config):
    """The tokenizer: trained on the training data, or one that is there already."""

    kind: TokenizerKind = "bpe"
    """Subwords, or words for text that is already cut, with `@@ ` inside words."""
    vocab_size: Width = 8000
    """How many tokens, at most."""
    split_punctuation: Flag = False
    """Punctuation marks are subwords by themselves: a word is the same before a comma and before a full stop."""
    shared: Flag = True
    """One vocabulary for both sides, or one for each."""
    source: Path | None = None
    """A tokenizer.json to take in place of training one."""
    target: Path | None = None
    """The target's, where it has one of its own."""

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if self.split_punctuation and (self.kind == "words" or self.source is not None):
            raise InputError("split_punctuation is for a tokenizer of subwords that is trained here")
        if self.target is not None and self.source is None:
            raise InputError("a target tokenizer is given without a source tokenizer")
        if self.source is not None and self.target is None and not self.shared:
            raise InputError("shared is false, and a source tokenizer is given without a target tokenizer")


class Optimizer(Config):
    """Adam with the paper's β₂ = 0.98 in place of the usual 0.999."""

    betas: tuple[Rate, Rate] = (0.9, 0.98)
    eps: Positive = 1e-9
    weight_decay: NotNegative = 0.0
    """Taken from the weights directly, not through the gradient (AdamW)."""
    clip: Positive | None = 1.0
    """Maximum gradient norm."""


class Training(Config):
    """The training loop."""

    seed: Count = 1
    start_from: Path | None = None
    """Model directory to fine-tune: its weights, tokenizers and config; `[model]` overrides fields such as dropout."""
    steps: Size | None = None
    """Stop after so many updates."""
    epochs: Size | None = None
    """Stop after so many passes over the data."""
    batch_tokens: Size = 4096
    """The size of a batch: rows times the longest of them, on the longer of the two sides."""
    accumulate: Size = 1
    """How many batches go into an update."""
    label_smoothing: Rate = 0.1
    softmax_gradient: Annotated[Literal["exact", "sampled"], BeforeValidator(current_softmax_gradient)] = "exact"
    """Whether all elements of the gradient for the logits are used, or the small ones are sampled, so that the gradient
    is unbiased: faster where the vocabulary is large for the width of the model.
    """
    r_drop: Annotated[float, Field(ge=0.0, le=1e6, strict=True)] = 0.0
    """R-Drop's α, the weight of the KL term between two passes with different dropout; 0 disables R-Drop."""
    r_drop_from: Size = 1
    """First step with R-Drop; earlier steps make one pass."""
    subword_dropout: Annotated[float, Field(ge=0.0, le=1.0, strict=True)] = 0.0
    """Probability of dropping a BPE merge (BPE-dropout), resampled each epoch."""
    dropout_rise: Count = 0
    """Number of steps over which the dropout rates rise linearly from 0."""
    curriculum: Count = 0
    """Number of steps of a length curriculum: training starts with the shortest 1 % of the examples, and batches
    that are still too long are skipped.
    """
    precision: Literal["float32", "bfloat16", "float16", "int8", "float64"] = "float32"
    """Precision of matrix products. Weights and optimizer state are float32, except with float64, which is for tests.

    With int8, which is for CPUs, linear layers round what they multiply, forward and backward, and logits come from an
    int8 matmul where their gradient is sampled. `regard doctor` says what is faster here.
    """
    device: DeviceName = "auto"
    """Where the model trains: a GPU if there is one ("auto"), or the device of this name."""
    compile: Flag = False
    """Whether the model is compiled by `torch.compile`, for GPUs; kernels of the package are then not used."""
    threads: Annotated[int, Field(ge=1, le=4096, strict=True)] | None = None
    """How many threads a process computes with; as many as torch chooses unless given."""
    workers: Count = 0
    """How many processes prepare batches beside the one that trains."""
    report_every: Size = 20
    """Number of steps between reports."""
    sharded: Flag = False
    """Whether many processes share the weights between them (FSDP2), or each has them all (DDP)."""

    def total_steps(self, steps_in_epoch: int) -> int:
        """Return how many steps there are, if nothing stops them sooner; epochs are counted as if all were alike."""
        limits = (self.steps, None if self.epochs is None else self.epochs * steps_in_epoch)
        return min(limit for limit in limits if limit is not None)


class Validation(Config):
    """How the model is validated, and when."""

    every: Size | None = None
    """In steps; at the end of each epoch unless given."""
    metric: str = "loss"
    """Metric that selects the best model: the loss per token, or a metric of the task."""
    beam: Annotated[int, Field(ge=1, le=MOST_ROWS, strict=True)] = 1
    """How wide the search for it is; the model is saved with it."""
    length_penalty: LengthPenalty = 1.0
    """α in the score log P / length^α; higher values favor longer outputs."""
    patience: Size | None = None
    """Stop after so many validations without a new best."""


class Checkpoints(Config):
    """What is kept on disk while training."""

    every: Size = 500
    """In steps."""
    keep: Size = 2
    """How many of the newest."""


class Averaging(Config):
    """Which weights the run ends with."""

    kind: Literal["none", "last", "best", "running"] = "none"
    """Those of the last step, the mean of the last or best snapshots, or a running mean over all steps."""
    count: Size = 5
    """How many snapshots; one is taken at each validation."""
    decay: Rate = 0.999
    """Decay of the exponential moving average, after its warmup."""


class Run(Config):
    """A training run, from data to model.

    >>> run = Run.from_toml('''
    ... [data]
    ... train = [{kind = "dates"}]
    ... [model]
    ... preset = "tiny"
    ... [training]
    ... steps = 100
    ... ''', changes=["training.seed=7"])
    >>> run.training.seed
    7
    """

    task: Tasks = (TranslationTask(),)
    """What the model is for: the kind of task, a table with its settings, or a list of several tasks."""
    data: Data
    tokenizer: Vocabulary = Vocabulary()
    model: Annotated[dict[str, Any], Field(default_factory=dict)]
    """The fields of `TransformerConfig`, and `preset`, the one that they change."""
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    training: Training = Training(steps=100_000)
    validation: Validation = Validation()
    checkpoints: Checkpoints = Checkpoints()
    averaging: Averaging = Averaging()

    @classmethod
    def load(cls, name: str | os.PathLike[str], changes: Iterable[str] = ()) -> Self:
        """Read a run file, or a recipe by its name, with changes such as `training.seed=2` made to it.

        Paths in a run file are relative to its directory.
        """
        path = recipes.find(name)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigError(f"{path} is missing") from None
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise ConfigError(f"{path}, line {line} is not UTF-8") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
        changes, base = tuple(changes), path.parent.absolute()
        try:
            return cls.from_toml(text, changes=changes, base=base)
        except ConfigError as error:
            raise ConfigError(f"{path}{_with_changes(cls, text, changes)}: {error}") from None

    @classmethod
    def from_toml(cls, text: str, *, changes: Iterable[str] = (), base: Path = Path()) -> Self:
        """Read the text of a run file, with changes such as `training.seed=2` made to it."""
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # numbers without end, brackets without end
            raise ConfigError(f"not TOML: {error}") from None
        for change in changes:
            set_value(content, change)
        return cls.model_validate(content).with_paths_from(base)

    def with_paths_from(self, base: Path) -> Self:
        """Return the same run with relative paths taken from a directory."""
        data = self.data.model_copy(
            update={
                "train": tuple(_anchored(corpus, base) for corpus in self.data.train),
                "valid": tuple(_anchored(corpus, base) for corpus in self.data.valid),
                "cache": self.data.cache and base / self.data.cache,
            }
        )
        anchored = {"tokenizer": _anchored(self.tokenizer, base), "training": _anchored(self.training, base)}
        return self.model_copy(update={"data": data, **anchored})

    def check(self) -> None:
        """Raise an `InputError` where fields do not fit together."""
        if self.training.steps is None and self.training.epochs is None:
            raise InputError("training has neither steps nor epochs; one of them says when it ends")
        for name in ("vocab_size", "source_vocab_size", "pad_id", "bos_id", "eos_id"):
            if name in self.model:
                raise InputError(f"model.{name} follows from the tokenizer and is not set in a run")
        self._check_tasks()
        if self.training.start_from is None:  # else it may not be there yet
            self.model_config_for(1000, 1000)
        if self.validation.patience is not None and not self.data.valid:
            raise InputError("validation.patience is set, but data.valid names nothing to validate on")
        if self.averaging.kind == "best" and not self.data.valid:
            raise InputError("averaging.kind is 'best', but data.valid names nothing to validate on")
        steps = self.training.steps
        if steps is not None and self.schedule.cooldown > steps:
            raise InputError(f"schedule.cooldown is {self.schedule.cooldown}, more than the run's {steps} steps")
        if self.training.curriculum and self.training.epochs is not None:
            raise InputError("training.curriculum makes epochs shorter; training.steps alone says when the run ends")
        if steps is not None and self.training.curriculum > steps:
            raise InputError(f"training.curriculum is {self.training.curriculum}, more than the run's {steps} steps")
        begin = self.training.r_drop_from
        if begin > 1 and self.training.r_drop == 0.0:
            raise InputError("training.r_drop_from is set, but training.r_drop is 0: no step makes two passes")
        if steps is not None and begin > steps:
            raise InputError(f"training.r_drop_from is {begin}, after the last of the run's {steps} steps")
        if self.training.start_from is not None and (self.tokenizer.source is not None or "preset" in self.model):
            raise InputError("training.start_from brings its own tokenizers and config; leave source and preset out")

    def _check_tasks(self) -> None:
        kinds = [task.kind for task in self.task]
        for corpus in (*self.data.train, *self.data.valid):
            if corpus.task is None and len(kinds) > 1:
                raise InputError(f"a corpus names no task; with several tasks each names its own: {', '.join(kinds)}")
            if corpus.task is not None and corpus.task not in kinds:
                raise InputError(f"a corpus is for the task {corpus.task!r}; the run has {', '.join(kinds)}")
            if corpus.tag is not None and self.shape == "decoder-only":
                raise InputError(
                    f"a corpus has the tag {corpus.tag!r}, and a decoder alone has no source to put it before"
                )
        used = {corpus.task for corpus in self.data.train}
        if len(kinds) > 1 and (unused := [kind for kind in kinds if kind not in used]):
            raise InputError(f"the task {unused[0]!r} has no corpus in data.train to learn from")
        metric = self.validation.metric
        for task in self.task:
            known = ("loss", *task.metrics, *(registered_metrics() if task.metrics else ()))
            if metric not in known:
                expected = f"one of {', '.join(known)}" if task.metrics else "loss: it has no answers to score"
                raise InputError(f"validation.metric is {metric!r}; for {task.kind} it is {expected}")
        if self.shape != "encoder-decoder" and (not self.tokenizer.shared or self.tokenizer.target is not None):
            raise InputError(f"a model that is {self.shape} has one vocabulary; leave tokenizer.shared and target out")
        if self.shape == "encoder-only" and (self.training.r_drop > 0.0 or self.training.softmax_gradient != "exact"):
            raise InputError(
                f"training.r_drop and sampled gradients are for models that write; {self.task[0].kind} has none"
            )

    @property
    def shape(self) -> Shape:
        """Which stacks the model has."""
        return self.task[0].shape

    def task_of(self, corpus: Corpus) -> Task:
        """Return the task that a corpus is for."""
        return next(task for task in self.task if corpus.task in (None, task.kind))

    def tag_of(self, corpus: Corpus) -> str | None:
        """Return the special token that stands before the sources of a corpus."""
        return corpus.tag or self.task_of(corpus).tag

    def model_config_for(self, source_size: int, target_size: int) -> TransformerConfig:
        """Describe the model for vocabularies of these sizes."""
        if self.training.start_from is not None:
            return self._model_to_go_on_from(self.training.start_from)
        fields = dict(self.model)
        preset = fields.pop("preset", "base")
        fields.update(vocab_size=target_size, pad_id=0, bos_id=1, eos_id=2)
        for name, value in self.task[0].model_fields_for().items():
            if fields.setdefault(name, value) != value:
                raise InputError(f"model.{name} is {fields[name]!r}; for {self.task[0].kind} it is {value!r}")
        if not self.tokenizer.shared or self.tokenizer.target is not None:
            fields.update(source_vocab_size=source_size)
            fields.setdefault("shared_embeddings", "target-output")
        try:
            config = TransformerConfig.preset(preset, **fields)
        except ConfigError as error:
            raise InputError(f"model: {error}") from None
        if config.kind != self.shape:
            raise InputError(f"model describes a model that is {config.kind}; {self.task[0].kind} needs {self.shape}")
        return self._checked_with_task(config)

    def _checked_with_task(self, config: TransformerConfig) -> TransformerConfig:
        """Return a config that fits the gradients and the windows and blocks that tasks cut texts into."""
        if config.copying and self.training.softmax_gradient != "exact":
            raise InputError("training.softmax_gradient is 'sampled', and a model that copies has exact gradients only")
        for task in self.task:
            if config.longest is not None and task.longest_part > config.longest:
                raise InputError(
                    f"{task.kind} reads up to {task.longest_part} tokens at once; "
                    + " and ".join(f"{key} ends at {tokens}" for key, tokens in config.limits().items())
                )
        return config

    def _model_to_go_on_from(self, path: Path) -> TransformerConfig:
        before = read_config(path / CONFIG_FILE)
        try:
            config = TransformerConfig(**{**before.model_dump(), **self.model})
        except ConfigError as error:
            raise InputError(f"model: {error}") from None
        if config.kind != self.shape:
            raise InputError(f"{path} is {config.kind}; {self.task[0].kind} needs a model that is {self.shape}")
        return self._checked_with_task(config)

    @property
    def tags(self) -> list[str]:
        """The special tokens that corpora put before their sources, each once."""
        return sorted({tag for corpus in (*self.data.train, *self.data.valid) if (tag := self.tag_of(corpus))})


def _anchored(config: AnyConfig, base: Path) -> AnyConfig:
    paths: dict[str, Path | tuple[Path, ...]] = {
        name: base / value for name, value in config if isinstance(value, Path)
    }
    for name, value in config:
        if isinstance(value, tuple) and value and all(isinstance(entry, Path) for entry in value):
            paths[name] = tuple(base / entry for entry in value)
    return config.model_copy(update=paths) if paths else config


def cache_directory(data: Data) -> Path:
    """Where encoded corpora are kept."""
    if data.cache is not None:
        return data.cache
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "regard" / "corpora"
    except RuntimeError:
        raise DataError("there is no home directory for the cache; set data.cache") from None


def _with_changes(cls: type[Run], text: str, changes: tuple[str, ...]) -> str:
    """Return the changes to a run file as an addition to its name, where it is right without them."""
    try:
        cls.from_toml(text)
    except ConfigError:
        return ""
    return "".join(f" with --set {change}" for change in changes)
