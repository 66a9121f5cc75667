"""A lexicon finds the words that go together."""

import random

import numpy as np

from regard.data.lexicon import learn_lexicon


def test_words_of_a_made_up_language_are_found_again() -> None:
    draw = random.Random(0)
    # Word s is always 40 - s there; a particle comes with all of them, and 1 and 2 never come alone.
    pairs = []
    for _ in range(400):
        source = [draw.randrange(3, 20) for _ in range(draw.randrange(1, 6))]
        pairs.append(([1, 2, *source], [*(40 - s for s in source), 39]))
    found = learn_lexicon(pairs, 25, 41, each=3, always=2)
    for s in range(3, 20):
        assert found.likeliest_VK[s, 0] == 40 - s
    assert 39 in found.likeliest_VK[1]
    assert found.frequent_A[0] == 39
    assert found.likeliest_VK.shape == (25, 3)
    assert (found.likeliest_VK[[0, 20, 24]] == -1).all()


def test_there_may_be_less_than_is_asked_for_or_nothing() -> None:
    found = learn_lexicon([([1], [2, 3, 2]), ([], [4]), ([5], [])], 6, 6, each=4, always=10)
    assert found.likeliest_VK[1].tolist() == [2, 3, -1, -1]
    assert found.likeliest_VK[5].tolist() == [-1] * 4
    assert found.frequent_A.tolist() == [2, 3, 4]
    empty = learn_lexicon([], 3, 3, each=2, always=2)
    assert np.array_equal(empty.likeliest_VK, np.full((3, 2), -1))
    assert empty.frequent_A.size == 0
