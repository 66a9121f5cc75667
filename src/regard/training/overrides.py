"""Changes to a run file from the command line: `--set training.seed=2`."""

import tomllib
from typing import Any

from regard.errors import ConfigError


def set_value(content: dict[str, Any], change: str) -> None:
    """Carry out `a.b=value` on the content of a run file; the value is TOML, and what is not is text."""
    path, equals, text = change.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"--set {change!r} is not of the form section.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text.strip()
    *sections, key = path.strip().split(".")
    place: Any = content
    for section in sections:
        if isinstance(place, list):
            place = _element(place, section, path)
        else:
            place = place.setdefault(section, {})
        if not isinstance(place, dict | list):
            raise ConfigError(f"--set {path}: {section} is a value, not a section")
    if isinstance(place, list):
        _element(place, key, path)
        place[int(key)] = value
    else:
        place[key] = value


def _element(place: list[Any], index: str, path: str) -> Any:
    if not index.isdecimal() or int(index) >= len(place):
        raise ConfigError(f"--set {path}: {index!r} is not one of the {len(place)} entries, counted from 0")
    return place[int(index)]
