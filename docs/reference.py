"""Write docs/configuration.md from the config classes and their attribute docstrings: `make docs`."""

import ast
import inspect
import textwrap
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from regard.configs import Config
from regard.data import Babi, Dates, JsonLines, ParallelFiles, Squad, TabSeparated, TextFiles
from regard.data.corpora import Corpus
from regard.decoding import SearchSettings
from regard.model import TransformerConfig
from regard.tasks import Task
from regard.tasks.known import KnownTask
from regard.training import Run

PAGE = Path(__file__).with_name("configuration.md")

INTRODUCTION = """\
# Configuration

Every key of a run file and of a model, generated from the config classes by `docs/reference.py`. A run file is TOML;
`--set training.seed=2` overrides one value. Unknown keys are refused with the nearest known one, and values
are checked for their type and range before any work starts. [Training](training.md) explains how to use them.
"""

CORPORA: tuple[type[Corpus], ...] = (ParallelFiles, TabSeparated, JsonLines, TextFiles, Squad, Babi, Dates)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the text of the page."""
    sections = [INTRODUCTION, "## Run files\n"]
    for name, field in Run.model_fields.items():
        if name == "task":
            sections.append(_tasks())
            continue
        config = TransformerConfig if name == "model" else field.annotation
        assert isinstance(config, type)
        assert issubclass(config, Config)
        sections.append(_section(f"`[{name}]`", config, skipped=_MADE_BY_THE_TOKENIZER if name == "model" else ()))
        if name == "data":
            sections.append(_corpora())
        if name == "model":
            sections.append(_variations())
    sections.append("## Search settings\n")
    sections.append(
        "Keyword arguments of the methods that write texts, such as `Translator.translate`, options of "
        "`regard translate`, `regard summarize`, `regard answer` and `regard generate`, and the keys of a model's "
        "`generation.json`, which holds its defaults.\n"
    )
    sections.append(_table(SearchSettings))
    return "\n".join(sections)


_NO_BOUND = 2**20  # guards against absurd values, and says nothing to a reader
_MADE_BY_THE_TOKENIZER = ("vocab_size", "source_vocab_size", "pad_id", "bos_id", "eos_id")


def _section(heading: str, config: type[Config], skipped: tuple[str, ...] = ()) -> str:
    lines = [f"### {heading}", "", _summary(config), ""]
    if config is TransformerConfig:
        lines += [
            "`preset` is tiny, small, base (the default of a run) or big; any field below overrides it. "
            "The sizes of the vocabularies and the special tokens follow from the tokenizer.",
            "",
        ]
    return "\n".join(lines) + "\n" + _table(config, skipped)


def _tasks() -> str:
    parts = [
        "### `task`\n",
        'What the model is for: the name of a kind, as in `task = "summarization"`, a table with `kind` and settings, '
        "or a list of several. Translation unless given. [Tasks](tasks.md) explains them. Every kind has this key:\n",
        _table(Task, ("kind",)),
    ]
    for task in get_args(KnownTask):
        (kind,) = get_args(task.model_fields["kind"].annotation)
        metrics = ", ".join(f"`{name}`" for name in ("loss", *task.metrics))
        parts.append(f'#### `kind = "{kind}"`\n\n{_summary(task)}\n')
        parts.append(f"Shape of the model: {task.shape}. `validation.metric`: {metrics}.\n")
        if task.model_fields.keys() - Task.model_fields.keys():
            parts.append(_table(task, tuple(Task.model_fields)))
    return "\n".join(parts)


def _corpora() -> str:
    common = _table(Corpus)
    parts = ["### Corpora\n", "The entries of `data.train` and `data.valid`. Every kind has these keys:\n", common]
    for table in _tables_within(Corpus):
        parts.append(f"#### {_title(table)}\n\n{_summary(table)}\n")
        parts.append(_table(table))
    for corpus in CORPORA:
        (kind,) = get_args(corpus.model_fields["kind"].annotation)
        parts.append(f'#### `kind = "{kind}"`\n\n{_summary(corpus)}\n')
        parts.append(_table(corpus, ("kind", *Corpus.model_fields)))
    return "\n".join(parts)


def _variations() -> str:
    """Return a section for each table that a model's configuration may hold."""
    parts = [
        "### Variations of a model\n",
        "Tables within `[model]`. The name of a kind alone is its defaults.\n",
    ]
    for config in _tables_within(TransformerConfig):
        parts.append(f"#### {_title(config)}\n\n{_summary(config)}\n")
        named = ("kind",) if _kind(config) else ()
        if config.model_fields.keys() - named:
            parts.append(_table(config, named))
    return "\n".join(parts)


def _tables_within(config: type[Config]) -> list[type[Config]]:
    """Return the config classes that the fields of a config may hold, and those that theirs may."""
    found: dict[type[Config], None] = {}
    for field in config.model_fields.values():
        for part in _parts(field.annotation):
            if isinstance(part, type) and issubclass(part, Config):
                found |= dict.fromkeys([part, *_tables_within(part)])
    return list(found)


def _parts(annotation: Any) -> list[Any]:
    arguments = () if get_origin(annotation) is Literal else get_args(annotation)
    return [annotation, *(part for argument in arguments for part in _parts(argument))]


def _kind(config: type[Config]) -> str | None:
    """Return the one value that the `kind` of a table has, where that tells tables apart."""
    field = config.model_fields.get("kind")
    kinds = () if field is None or field.metadata else get_args(field.annotation)
    return str(kinds[0]) if len(kinds) == 1 else None


def _title(config: type[Config]) -> str:
    """Return the heading of a table: its kind with what else its class is about, such as `linear scaling`."""
    name, kind = config.__name__.removesuffix("Config"), _kind(config)
    return name if kind is None else f"{kind} scaling" if name.endswith("Scaling") else kind


def _summary(config: type[Config]) -> str:
    """Return the first paragraph of a class's docstring."""
    return " ".join(inspect.cleandoc(config.__doc__ or "").split("\n\n")[0].split())


def _table(config: type[Config], skipped: tuple[str, ...] = ()) -> str:
    rows = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    documented = attribute_docstrings(config)
    for name, field in config.model_fields.items():
        if name not in skipped:
            cells = (f"`{name}`", _value(_annotation(field)), _default(field), documented.get(name, ""))
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def attribute_docstrings(config: type[Config]) -> dict[str, str]:
    """Return the string below each field of a class, in one line.

    >>> attribute_docstrings(TransformerConfig)["num_heads"]
    'H: how many heads attend in parallel.'
    """
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if not (
            isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr)
        ):
            continue
        if isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            found[field.target.id] = " ".join(below.value.value.split())
    return found


def _annotation(field: FieldInfo) -> Any:
    """Return the type of a field with the bounds that pydantic keeps beside it."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def _value(annotation: Any) -> str:
    """Return a type in words: `integer ≥ 1`, `"pre"`, `"post"`."""
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin is Annotated:
        bounds = [text for constraint in arguments[1:] if (text := _bound(constraint))]
        return " ".join([_value(arguments[0]), ", ".join(bounds)]).strip()
    if origin is Literal:
        return ", ".join(f'`"{choice}"`' for choice in arguments)
    if origin in (Union, UnionType):
        kinds = dict.fromkeys(_value(argument) for argument in arguments if argument is not NoneType)
        return " or ".join(kinds)
    if origin is tuple:
        entries = dict.fromkeys(_value(argument) for argument in arguments if argument is not Ellipsis)
        return f"list of {' or '.join(entries)}"
    if origin is dict:
        return f"table of {_value(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Corpus):
        return "[corpora](#corpora)"
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return f"[{_kind(annotation) or _title(annotation)}](#{_title(annotation).lower().replace(' ', '-')})"
    return {int: "integer", float: "number", bool: "`true` or `false`", str: "string", Path: "path"}[annotation]


def _bound(constraint: Any) -> str:
    """Return a bound, such as `≥ 1`; "" for what bounds nothing."""
    inner = [text for part in getattr(constraint, "metadata", ()) if (text := _bound(part))]
    if inner:
        return ", ".join(inner)
    for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
        number = getattr(constraint, name, None)
        if number is not None and number < _NO_BOUND:
            return f"{sign} {number:,}" if isinstance(number, int) else f"{sign} {number:g}"
    return ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "" if value is None or isinstance(value, Config) else f"`{_toml(value)}`"


def _toml(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case tuple():
            return f"[{', '.join(map(_toml, value))}]"
    return str(value)


if __name__ == "__main__":
    main()
