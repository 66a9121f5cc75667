"""What a run computes on."""

from pathlib import Path

import pytest

from regard.training.environment import cpu_name

ZEN_4 = """processor\t: 0
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
stepping\t: 1

processor\t: 1
model name\t: AMD EPYC
"""


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (ZEN_4, "AMD EPYC (family 25, model 17)"),
        ("model name\t: Some processor\n", "Some processor"),
    ],
)
def test_processors_of_one_name_are_told_apart_by_family_and_model(
    monkeypatch: pytest.MonkeyPatch, lines: str, name: str
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: lines)
    assert cpu_name() == name


def test_a_processor_has_a_name_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert cpu_name()
