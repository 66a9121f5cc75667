"""Values of fields, as files have them."""

import pytest

from regard.data import Answer
from regard.data.examples import FieldError, field_value


@pytest.mark.parametrize(
    ("value", "answers"),
    [
        ("garden", [Answer("garden")]),
        ("", []),
        ([], []),
        (["a", "b"], [Answer("a"), Answer("b")]),
        ([{"text": "a", "answer_start": 3}, {"text": "b"}], [Answer("a", 3), Answer("b")]),
        ({"text": ["a", "b"], "answer_start": [0, 7]}, [Answer("a", 0), Answer("b", 7)]),
    ],
)
def test_answers_are_written_in_several_ways(value: object, answers: list[Answer]) -> None:
    assert field_value("answers", value) == answers


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("answers", 3, "is int, not an answer or a list of answers"),
        ("answers", [3], "is int, not text"),
        ("answers", None, "is NoneType, not an answer"),
        ("answers", {"text": ["a"], "answer_start": []}, "is dict, not an answer"),
        ("answers", [{"text": "a", "answer_start": -1}], "has an answer_start of -1, which is not the number"),
        ("answers", [{"text": "a", "answer_start": True}], "has an answer_start of True"),
        ("text", "\ud83d", "has half a character"),
        ("text", 3, "is int, not text"),
        ("label", 0.5, "is float, not text"),
    ],
)
def test_values_of_another_type_are_refused(field: str, value: object, says: str) -> None:
    with pytest.raises(FieldError, match=says):
        field_value(field, value)


def test_labels_may_be_integers() -> None:
    assert [field_value("label", value) for value in ("good", 3)] == ["good", "3"]
