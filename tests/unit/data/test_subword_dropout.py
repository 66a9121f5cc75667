import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import InputError
from regard.acceleration.subword_dropout import cut_by_kernel
from regard.data import SubwordDropout, Tokenizer
from regard.kernels.bindings import kernels

TEXT = "the quick brown fox jumps over the lazy dog 🐕 and the other foxes"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT] * 3 + ["the dog", "other brothers"], vocab_size=420)


def test_nothing_dropped_is_the_librarys_own_cut(tokenizer: Tokenizer) -> None:
    dropout = SubwordDropout(tokenizer, 0.0, seed=1)
    for text in (TEXT, "", "  spaces  ", "brotherly <s> dogs 🐕🐕"):
        numbers = tokenizer.encode(text)
        assert dropout.cut(numbers, epoch=0, example=0) == numbers


def test_all_dropped_is_letters(tokenizer: Tokenizer) -> None:
    cut = SubwordDropout(tokenizer, 1.0, seed=1).cut(tokenizer.encode("the fox"), epoch=0, example=0)
    assert [tokenizer.token(number) for number in cut] == list("▁the▁fox")


def test_the_cut_depends_on_seed_epoch_and_example_alone(tokenizer: Tokenizer) -> None:
    numbers = tokenizer.encode(TEXT)
    cuts = {
        (seed, epoch, example): tuple(
            SubwordDropout(tokenizer, 0.3, seed=seed).cut(numbers, epoch=epoch, example=example)
        )
        for seed in range(2)
        for epoch in range(2)
        for example in range(2)
    }
    assert len(set(cuts.values())) > 4
    for cut in cuts.values():
        assert tokenizer.decode(cut) == TEXT
    again = SubwordDropout(tokenizer, 0.3, seed=1)
    again.cut(numbers, epoch=5, example=9)
    assert tuple(again.cut(numbers, epoch=1, example=0)) == cuts[1, 1, 0]


def test_merges_are_left_out_at_the_rate() -> None:
    """Of ▁ a b with the merges a+b and ▁+ab: both are made, the first alone, or none."""
    tokenizer = Tokenizer.train(["ab"] * 9, vocab_size=400)
    assert tokenizer.merges == [("a", "b"), ("▁", "ab")]
    dropout, numbers, tries = SubwordDropout(tokenizer, 0.3, seed=3), tokenizer.encode("ab"), 4000
    pieces = Counter(len(dropout.cut(numbers, epoch=0, example=example)) for example in range(tries))
    for count, probability in ((1, 0.7 * 0.7), (2, 0.7 * 0.3), (3, 0.3)):
        assert pieces[count] / tries == pytest.approx(
            probability, abs=4 * (probability * (1 - probability) / tries) ** 0.5
        )


def test_a_pair_that_was_learned_later_is_merged_where_the_first_is_left_out() -> None:
    tokenizer = Tokenizer.train(["ab"] * 9 + ["bc"] * 5 + ["abc"], vocab_size=400)
    assert {("a", "b"), ("b", "c")} <= set(tokenizer.merges)
    dropout, numbers = SubwordDropout(tokenizer, 0.5, seed=3), tokenizer.encode("abc")
    cuts = {" ".join(map(tokenizer.token, dropout.cut(numbers, epoch=0, example=n))) for n in range(200)}
    assert {"▁ a bc", "▁ ab c", "▁ a b c"} <= cuts


@pytest.mark.skipif(kernels() is None, reason="the kernels were not built: there was no compiler")
@given(text=st.text("thequickbrownfoxdg 🐕日<s>", max_size=60), rate=st.sampled_from([0.0, 1e-20, 0.05, 0.3, 0.9, 1.0]))
def test_the_kernel_cuts_as_the_formula_does(tokenizer: Tokenizer, text: str, rate: float) -> None:
    plain, fast = (SubwordDropout(tokenizer, rate, seed=1, cut=cut) for cut in (None, cut_by_kernel))
    numbers = [*tokenizer.encode(text), *tokenizer.special]
    for example in range(5):
        assert plain.cut(numbers, epoch=0, example=example) == fast.cut(numbers, epoch=0, example=example)


def test_tokens_that_no_merge_makes_stay_as_they_are(tokenizer: Tokenizer, tmp_path: Path) -> None:
    content = json.loads(tokenizer.to_json())
    content["model"]["vocab"] |= {"日本": tokenizer.vocab_size}  # letters that are no tokens
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    strange = [tokenizer.vocab_size, *tokenizer.encode("dog")]
    assert (
        SubwordDropout(Tokenizer.load(tmp_path / "tokenizer.json"), 0.0, seed=1).cut(strange, epoch=0, example=0)
        == strange
    )


@pytest.mark.parametrize("number", [-1, 420])
def test_a_number_that_is_no_token_is_told(tokenizer: Tokenizer, number: int) -> None:
    with pytest.raises(InputError, match=f"number {number} is not in the vocabulary"):
        SubwordDropout(tokenizer, 0.1, seed=0).cut([5, number], epoch=0, example=0)


def test_bad_arguments_are_told(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="rate of subword dropout is 2"):
        SubwordDropout(tokenizer, 2, seed=0)
    with pytest.raises(InputError, match="a words tokenizer has none"):
        SubwordDropout(Tokenizer.train(["a b"], kind="words", vocab_size=20), 0.1, seed=0)
