"""Augmentation of bAbI: copies of stories with permuted names, places and objects.

Answers do not depend on the particular names. The copies keep a model from memorizing the stories.
"""

import random
import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from regard.data.examples import Answer, Example

EXCHANGE_VERSION = 1
"""Changes whenever the copies do: what was encoded from other ones is encoded anew."""

Word = str | tuple[str, ...]
"""A word, or the forms of one that change together, such as `("wolf", "wolves")`."""
Alike = Sequence[Sequence[Word]]
"""Lists of words each of which may take the place of another one of its list."""

_PEOPLE: Alike = (("john", "daniel", "fred", "jeff", "bill"), ("mary", "sandra", "julie"))  # he, she
_PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office", "school", "park", "cinema")
_MOVES = ("went", "moved", "journeyed", "travelled")
_ACTIONS: Alike = (*_PEOPLE, _PLACES, ("football", "milk", "apple"), _MOVES)
_COMPASS: Alike = (_PLACES, (("north", "n"), ("south", "s")), (("east", "e"), ("west", "w")))
_FIELDS = ("context", "question", "answers")
_COLORS = ("red", "pink", "blue", "yellow")
BABI: dict[int, Alike] = {
    **dict.fromkeys((1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14), _ACTIONS),
    **dict.fromkeys((4, 19), _COMPASS),
    15: (("gertrude", "emily", "winona", "jessica"), (("wolf", "wolves"), ("cat", "cats"), ("mouse", "mice"))),
    16: (
        ("brian", "julius", "lily", "greg", "bernhard"),
        ("frog", "rhino", "lion", "swan"),
        ("gray", "yellow", "white", "green"),
    ),
    17: (_COLORS, ("square", "rectangle", "sphere", "triangle"), ("left", "right"), ("above", "below")),
    18: (("chest", "suitcase", "container"),),
    20: (("jason", "antoine", "sumit", "yann"), _MOVES),  # who is tired goes to the bedroom, and to no other place
}
"""What may be exchanged in the stories of bAbI, by the number of the task: nothing that their answers depend on."""


def with_copies(examples: Iterator[Example], alike: Alike, copies: int, seed: int = 1) -> Iterator[Example]:
    """Return each example, and so many copies of it with other words.

    >>> story = {"context": "Mary is in the park.", "question": "Where is Mary?", "answers": [Answer("park")]}
    >>> some = list(with_copies(iter([story]), [("mary", "eve"), ("park", "garden")], copies=20))
    >>> len(some), some[0] == story
    (21, True)
    >>> sorted({(example["question"], example["answers"][0].text) for example in some})
    [('Where is Eve?', 'garden'), ('Where is Eve?', 'park'), ('Where is Mary?', 'garden'), ('Where is Mary?', 'park')]
    """
    draw = random.Random(seed)
    for example in examples:
        yield example
        for _ in range(copies if alike else 0):
            others = _exchanges(alike, draw)
            yield {**example, **{name: _exchanged(example[name], others) for name in _FIELDS}}


def _exchanges(alike: Alike, draw: random.Random) -> dict[str, str]:
    """Draw what each word becomes: a permutation of each list."""
    others: dict[str, str] = {}
    for words in alike:
        for word, other in zip(words, draw.sample(words, len(words)), strict=True):
            forms, new = ((one,) if isinstance(one, str) else one for one in (word, other))
            others.update(zip(forms, new, strict=True))
    return others


_Value = TypeVar("_Value")


def _exchanged(value: _Value, others: dict[str, str]) -> _Value:
    def other(found: re.Match[str]) -> str:
        new = others.get(found[0].lower(), found[0])
        return new.capitalize() if found[0][0].isupper() and new != found[0] else new

    match value:
        case str():
            return re.sub(r"[A-Za-z]+", other, value)  # type: ignore[return-value]
        case list():
            return [Answer(_exchanged(answer.text, others)) for answer in value]  # type: ignore[return-value]
    return value
