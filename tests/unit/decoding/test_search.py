"""What a search finds, against trying everything."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.decoding import (
    Constraints,
    Finished,
    Hypothesis,
    Request,
    Scheduler,
    SearchSettings,
    StreamedTokens,
    search,
)
from regard.errors import ConfigError, InputError, ModelError
from tests.unit.decoding.toy import END, START, ReadingToy, Toy, log_probability, logits, run, texts


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    st.integers(0, 2),
    st.lists(st.integers(2, 4), max_size=2),
)
def test_a_beam_as_wide_as_the_space_finds_the_best(
    sentence: int, limit: int, penalty: float, least: int, prefix: list[int]
) -> None:
    least, prefix = min(least, limit), prefix[:limit]
    (found,) = run(
        [sentence],
        [Request(limit, tuple(prefix))],
        SearchSettings(beam=64, n_best=64, length_penalty=penalty, min_length=least),
    )
    every = [
        (log_probability(sentence, tokens) / (len(tokens) + 1) ** penalty, list(tokens))
        for length in range(least, limit + 1)
        for tokens in product((2, 3, 4), repeat=length)
        if list(tokens[: len(prefix)]) == prefix
    ]
    best = sorted(every, reverse=True)
    assert texts(found) == [tokens for _, tokens in best]
    assert [h.score for h in found] == pytest.approx([value for value, _ in best], abs=1e-9)
    assert [h.cut for h in found] == [len(h.tokens) == limit for h in found]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 12))
def test_a_beam_of_one_is_greedy(sentence: int, limit: int) -> None:
    ((best,),) = run([sentence], [Request(limit)], SearchSettings(beam=1))
    seen: tuple[int, ...] = (START,)
    while len(seen) - 1 < limit:
        logs = logits(sentence, seen, 5)
        logs[START] = -torch.inf
        if int(logs.argmax()) == END:
            break
        seen = (*seen, int(logs.argmax()))
    assert best.tokens == list(seen[1:])


every_setting = st.builds(
    lambda beam, groups, **more: SearchSettings(beam=beam * groups, groups=groups, n_best=beam * groups, **more),
    st.integers(1, 3),
    st.integers(1, 3),
    length_penalty=st.sampled_from([0.0, 1.0, 1.5]),
    coverage_penalty=st.sampled_from([0.0, 0.3]),
    no_repeat=st.sampled_from([0, 0, 2]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.7]),
    min_length=st.integers(0, 2),
) | st.builds(
    SearchSettings,
    sample=st.just(True),
    n_best=st.integers(1, 3),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.integers(0, 4),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.2]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.7]),
    seed=st.integers(0, 9),
)


@settings(max_examples=80, deadline=None)
@given(every_setting, st.lists(st.tuples(st.integers(0, 99), st.integers(2, 9)), min_size=1, max_size=8), st.data())
def test_batches_and_their_order_change_nothing(
    wanted: SearchSettings, asked: list[tuple[int, int]], data: st.DataObject
) -> None:
    sentences = [sentence for sentence, _ in asked]
    requests = [Request(limit, seed=sentence) for sentence, limit in asked]
    together = run(sentences, requests, wanted, slots=data.draw(st.integers(1, 9)))
    order = data.draw(st.permutations(range(len(asked))))
    shuffled = run([sentences[i] for i in order], [requests[i] for i in order], wanted, slots=3)
    for place, number in enumerate(order):
        (alone,) = run([sentences[number]], [requests[number]], wanted)
        assert together[number] == shuffled[place] == alone
        for hypothesis in alone:
            assert hypothesis.log_probability == pytest.approx(
                log_probability(sentences[number], hypothesis.tokens), abs=1e-9
            )


def repeats(found: list[list[Hypothesis]]) -> int:
    """Return how many of the best hypotheses have a token twice."""
    return sum(len(set(best.tokens)) < len(best.tokens) for best, *_ in found)


@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 4}, {"sample": True}])
def test_a_penalty_on_repetition_keeps_tokens_from_coming_twice(search: dict[str, Any]) -> None:
    free, penalized = (
        run(
            range(40),
            [Request(5)] * 40,
            SearchSettings(**search, min_length=3, repetition_penalty=penalty),
            vocabulary=9,
        )
        for penalty in (1.0, 20.0)
    )
    assert repeats(penalized) < 0.8 * repeats(free)


def test_required_words_are_not_penalized() -> None:
    required = Constraints.of_tokens(5, ((2, 2, 2),), ())
    for beam in (1, 3):
        free, penalized = (
            run(
                range(20),
                [Request(3, constraints=required)] * 20,
                SearchSettings(beam=beam, repetition_penalty=penalty),
            )
            for penalty in (1.0, 100.0)
        )
        assert texts([best for best, *_ in penalized]) == [[2, 2, 2]] * 20
        scores = [[best.score for best, *_ in found] for found in (free, penalized)]
        assert scores[1] == pytest.approx(scores[0])


class WithoutEnd(Toy):
    """A model that never ends by itself."""

    def step(self, tokens_BN: Tensor) -> Tensor:
        logits_BNW = super().step(tokens_BN)
        logits_BNW[:, :, END] = -torch.inf
        return logits_BNW


def test_a_penalty_on_repetition_needs_no_end_that_may_come() -> None:
    """Where the end's logit is -∞, nothing is computed from it."""
    settings = SearchSettings(beam=1, repetition_penalty=1.5)
    events = search(
        WithoutEnd([7], 1), Scheduler([Request(4)], settings), settings, start=START, end=END, never=[START]
    )
    with pytest.raises(ModelError, match="came to no end"):
        list(events)


class WithoutTwo(Toy):
    """A model that never writes 2."""

    def admit(self, numbers: Sequence[int]) -> Tensor:
        logits_BW = super().admit(numbers)
        logits_BW[:, 2] = -torch.inf
        return logits_BW


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wanted", [SearchSettings(sample=True, n_best=2), SearchSettings(beam=2)])
def test_a_required_token_without_a_probability_leaves_a_sentence_without_an_end(
    wanted: SearchSettings, stream: bool
) -> None:
    scheduler = Scheduler([Request(1, constraints=Constraints.of_tokens(5, required=[(2,)]))], wanted)
    events = search(WithoutTwo([7], 2), scheduler, wanted, start=START, end=END, never=[START], stream=stream)
    with pytest.raises(ModelError, match="came to no end"):
        list(events)


def test_what_a_sentence_must_start_with_is_not_penalized() -> None:
    wanted = SearchSettings(beam=2, repetition_penalty=2.0)
    requests = [Request(5, prefix=(2, 2, 3))] * 20
    written, read = (run(range(20), requests, wanted, reads=reads) for reads in (False, True))
    assert [texts(found) for found in written] == [texts(found) for found in read]
    assert [h.score for (h, *_) in written] == pytest.approx([h.score for (h, *_) in read], abs=1e-9)


phrases = st.lists(st.lists(st.integers(2, 6), min_size=1, max_size=2).map(tuple), max_size=2).map(tuple)


def contains(tokens: list[int], phrase: tuple[int, ...]) -> bool:
    return any(tuple(tokens[at : at + len(phrase)]) == phrase for at in range(len(tokens)))


Phrases = tuple[tuple[int, ...], ...]


def can_be_met(request: Request, required: Phrases, forbidden: Phrases, least: int) -> bool:
    """Whether any sequence at all does what is asked for."""
    lengths = range(max(least, len(request.prefix)), request.limit + 1)
    return any(
        all(contains([*request.prefix, *rest], phrase) for phrase in required)
        and not any(contains([*request.prefix, *rest], phrase) for phrase in forbidden)
        for length in lengths
        for rest in product(range(2, 7), repeat=length - len(request.prefix))
    )


@settings(max_examples=150, deadline=None)
@given(
    every_setting, phrases, phrases, st.lists(st.integers(2, 6), max_size=2).map(tuple), st.integers(3, 6), st.data()
)
def test_constraints_are_met_whenever_they_can_be(
    wanted: SearchSettings,
    required: Phrases,
    forbidden: Phrases,
    prefix: tuple[int, ...],
    limit: int,
    data: st.DataObject,
) -> None:
    rules = Constraints.of_tokens(7, required, forbidden) if required or forbidden else None
    request = Request(limit, prefix, rules)
    sentence = data.draw(st.integers(0, 99))
    try:
        _, (*_, constrained) = 0, run([5, sentence], [Request(4), request], wanted, vocabulary=7)
    except InputError:
        # Phrases may overlap, which the search does not try: it asks for space for each of them apart.
        overlap = sum(map(len, required)) + len(prefix) > limit or bool(forbidden)
        assert overlap or not can_be_met(request, required, forbidden, wanted.min_length)
        return
    assert constrained
    for hypothesis in constrained:
        assert tuple(hypothesis.tokens[: len(prefix)]) == prefix
        assert len(hypothesis.tokens) <= limit
        assert all(contains(hypothesis.tokens, phrase) for phrase in required)
        assert not any(contains(hypothesis.tokens, phrase) for phrase in forbidden)
        expected = log_probability(sentence, hypothesis.tokens, 7)
        assert hypothesis.log_probability == pytest.approx(expected, abs=1e-9)


def test_diverse_groups_differ_more() -> None:
    def kinds(groups: int) -> int:
        wanted = SearchSettings(beam=4, groups=groups, diversity=5.0, n_best=4)
        found = run(range(40), [Request(6)] * 40, wanted, vocabulary=30)
        return sum(len({tuple(h.tokens[:1]) for h in hypotheses}) for hypotheses in found)

    assert kinds(4) > 1.2 * kinds(1)


def test_no_sequence_of_two_comes_twice() -> None:
    wanted = SearchSettings(beam=3, no_repeat=2, min_length=8)
    for found in run(range(20), [Request(12)] * 20, wanted, vocabulary=12):
        pairs = list(zip(found[0].tokens, found[0].tokens[1:], strict=False))
        assert len(pairs) == len(set(pairs))


def test_coverage_is_worth_something() -> None:
    plain = run([3], [Request(6)], SearchSettings(beam=4, n_best=4))[0]
    covering = run([3], [Request(6)], SearchSettings(beam=4, n_best=4, coverage_penalty=0.7))[0]
    worth = {tuple(h.tokens): h.score for h in plain}
    shared = [h for h in covering if tuple(h.tokens) in worth]
    assert shared
    for hypothesis in shared:
        steps = len(hypothesis.tokens) + 1
        got = torch.full((4,), 0.05 * steps, dtype=torch.float64)
        for step in range(steps):
            got[step % 4] += 0.8
        expected = worth[tuple(hypothesis.tokens)] + 0.7 * float(got.clamp(max=1.0).log().sum())
        assert hypothesis.score == pytest.approx(expected)


def test_draws_follow_the_model() -> None:
    wanted = SearchSettings(sample=True, n_best=2000, seed=4)
    (found,) = run([8], [Request(1)], wanted)
    logs = logits(8, (START,), 5)
    logs[START] = -torch.inf
    expected = logs.softmax(-1)
    first = torch.bincount(torch.tensor([h.tokens[0] if h.tokens else END for h in found]), minlength=5) / 2000
    assert (first - expected).abs().max() < 0.04
    (likeliest,) = run([8], [Request(6)], SearchSettings(sample=True, top_k=1))
    assert texts(likeliest) == texts(run([8], [Request(6)], SearchSettings(beam=1))[0])


@pytest.mark.parametrize("beam", [1, 3])
def test_tokens_are_told_as_they_settle(beam: int) -> None:
    told: dict[int, list[int]] = {}
    wanted = SearchSettings(beam=beam)
    scheduler = Scheduler([Request(8)] * 9, wanted)
    for event in search(Toy(range(9), beam), scheduler, wanted, start=START, end=END, stream=True):
        if isinstance(event, StreamedTokens):
            told.setdefault(event.number, []).extend(event.tokens)
        elif event.number in told:
            tokens = told.pop(event.number)
            assert event.hypotheses[0].tokens[: len(tokens)] == tokens
            told[-1] = []
    assert -1 in told


def test_stopping_early_takes_fewer_steps_and_loses_little() -> None:
    sentences = list(range(40))
    requests = [Request(limit=9)] * len(sentences)
    steps, scores = {}, {}
    for early in (False, True):
        settings = SearchSettings(beam=4, early_stop=early)
        decoder = Counted(sentences, settings.rows)
        scheduler = Scheduler(requests, settings, slots=lambda number: 1)
        events = search(decoder, scheduler, settings, start=START, end=END, never=[START])
        found = [event.hypotheses[0].score for event in events if isinstance(event, Finished)]
        steps[early], scores[early] = decoder.steps, found
    assert steps[True] < 0.95 * steps[False]
    same = sum(one == other for one, other in zip(scores[False], scores[True], strict=True))
    assert same > 30
    assert all(one >= other for one, other in zip(scores[False], scores[True], strict=True))


class Counted(Toy):
    """A toy that counts its steps."""

    steps = 0

    def step(self, tokens_BN: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return super().step(tokens_BN)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(beam=0), "beam"),
        (dict(n_best=6), "n_best is 6, more than the beam of 5"),
        (dict(groups=2), "cannot be divided into 2 groups"),
        (dict(temperature=0.0), "temperature"),
        (dict(length_penalty=1000.0), "length_penalty is 1000.0"),
        (dict(sample=True, groups=5), "sampling does not use groups"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change: dict[str, int], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        SearchSettings(**change)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request(2, (3, 3, 3)), "leaves no room for a prefix of 3"),
        (Request(3, (), Constraints.of_tokens(5, [(2, 3), (4, 2)])), "takes 4 tokens; there is room for 3"),
        (Request(9, (), Constraints.of_tokens(5, [(2, 3)], [(3,)])), "cannot come without a forbidden one"),
        (Request(9, (2,), Constraints.of_tokens(5, (), [(2,)])), "must start with has a forbidden word"),
    ],
)
def test_what_cannot_be_met_is_refused(request_: Request, says: str) -> None:
    with pytest.raises(InputError, match=says):
        run([1], [request_], SearchSettings())


def test_no_two_of_the_best_spell_the_same() -> None:
    def text_of(tokens: list[int]) -> str:
        return "".join("abab"[token - 2] for token in tokens)  # 2 and 4 are spelled alike, and so are 3 and 5

    decoder = Toy([7], 6, 6)
    wanted = SearchSettings(beam=6, n_best=6)
    scheduler = Scheduler([Request(4)], wanted)
    events = list(search(decoder, scheduler, wanted, start=START, end=END, never=[START], text_of=text_of))
    (found,) = [event.hypotheses for event in events if isinstance(event, Finished)]
    assert len({text_of(hypothesis.tokens) for hypothesis in found}) == len(found) == 6


def test_what_is_required_does_not_make_a_hypothesis_go_on_beyond_its_end() -> None:
    for sentence in range(30):
        (plain,) = run([sentence], [Request(30)], SearchSettings(beam=1), vocabulary=7)
        rules = Constraints.of_tokens(7, [(6,)])
        (found,) = run([sentence], [Request(30, (), rules)], SearchSettings(beam=1), vocabulary=7)
        tokens = found[0].tokens
        assert 6 in tokens
        if 6 not in plain[0].tokens and tokens[: len(plain[0].tokens)] == plain[0].tokens:
            assert tokens == [*plain[0].tokens, 6]


@pytest.mark.parametrize("beam", [1, 3])
def test_what_is_not_a_number_ends_the_search(beam: int) -> None:
    class Broken(Toy):
        def step(self, tokens_BN: Tensor) -> Tensor:
            return torch.full((*tokens_BN.shape, 5), torch.nan)

    settings = SearchSettings(beam=beam)
    with pytest.raises(ModelError, match="not numbers"):
        list(search(Broken([1], beam), Scheduler([Request(5)], settings), settings, start=START, end=END))


@settings(max_examples=80, deadline=None)
@given(
    every_setting,
    st.lists(
        st.tuples(st.integers(0, 99), st.lists(st.integers(2, 4), max_size=4), st.integers(0, 4), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 8),
)
def test_a_prefix_that_is_read_at_once_finds_what_one_that_is_forced_finds(
    options: SearchSettings, wanted: list[tuple[int, list[int], int, bool]], slots: int
) -> None:
    """Sentences come and go, with prefixes of all lengths, and some with a required phrase."""
    required = Constraints.of_tokens(5, ((2, 3),), ())
    requests = [
        Request(max(len(prefix) + more, options.min_length) + 3, tuple(prefix), required if rules else None)
        for _, prefix, more, rules in wanted
    ]
    sentences = [sentence for sentence, *_ in wanted]
    forced, read = (run(sentences, requests, options, slots=slots, reads=reads) for reads in (False, True))
    for one, other in zip(forced, read, strict=True):
        assert texts(one) == texts(other)
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-9)
        assert [h.log_probability for h in one] == pytest.approx([h.log_probability for h in other], abs=1e-9)
        assert [h.cut for h in one] == [h.cut for h in other]


def test_a_prefix_that_is_read_at_once_is_streamed_first() -> None:
    decoder = ReadingToy([7], 2)
    prefix = (2, 3, 4) * 20
    scheduler = Scheduler([Request(64, prefix)], SearchSettings(beam=2))
    events = list(search(decoder, scheduler, SearchSettings(beam=2), start=START, end=END, never=[START], stream=True))
    settled = [token for event in events if isinstance(event, StreamedTokens) for token in event.tokens]
    (finished,) = (event for event in events if isinstance(event, Finished))
    assert tuple(settled[:60]) == prefix
    assert finished.hypotheses[0].tokens[: len(settled)] == settled
