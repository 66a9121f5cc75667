from threading import Thread

from hypothesis import given
from hypothesis import strategies as st

from regard.decoding import Finished, Request, Scheduler, SearchSettings, search
from regard.decoding.beams import Sentence
from tests.unit.decoding.toy import END, START, Toy, run, texts

SETTINGS = SearchSettings(beam=2)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 4))
def test_they_come_in_order_and_never_more_than_may_be_together(slots: list[int], searches: int) -> None:
    scheduler = Scheduler([Request(5)] * len(slots), SETTINGS, slots=lambda number: slots[number], searches=searches)
    share = -(-len(slots) // searches)
    beside: list[Sentence] = []
    came = []
    while coming := scheduler.take(beside):
        came += [sentence.number for sentence in coming]
        beside += coming
        assert len(beside) <= max(1, min(share, slots[coming[0].number]))
        beside = beside[len(beside) // 2 + 1 :]  # some are finished
    beside.clear()
    while coming := scheduler.take(beside):
        came += [sentence.number for sentence in coming]
    assert came == list(range(len(slots)))


def test_a_few_come_at_a_time() -> None:
    scheduler = Scheduler([Request(5)] * 40, SETTINGS, slots=lambda number: 16)
    present = scheduler.take([])
    assert len(present) == 16
    assert scheduler.take(present) == scheduler.take(present[3:]) == []
    assert len(scheduler.take(present[4:])) == 4


def test_nobody_comes_in_once_it_is_closed() -> None:
    scheduler = Scheduler([Request(5)] * 40, SETTINGS)
    scheduler.close()
    assert scheduler.take([]) == []


def test_a_search_ends_when_nobody_waits_for_it_any_more() -> None:
    scheduler = Scheduler([Request(50)] * 8, SETTINGS, slots=lambda number: 2)
    events = search(Toy(range(8), SETTINGS.rows), scheduler, SETTINGS, start=START, end=END, never=[START])
    next(events)
    scheduler.close()
    assert len(list(events)) <= 1  # what was found in the same step


def test_searches_that_share_find_what_one_finds() -> None:
    sentences = list(range(60))
    requests = [Request(7)] * len(sentences)
    scheduler = Scheduler(requests, SETTINGS, slots=lambda number: 4, searches=3)
    found: dict[int, list[list[int]]] = {}

    def one_of_them() -> None:
        for event in search(Toy(sentences, SETTINGS.rows), scheduler, SETTINGS, start=START, end=END, never=[START]):
            assert isinstance(event, Finished)
            assert event.number not in found
            found[event.number] = texts(event.hypotheses)

    threads = [Thread(target=one_of_them) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in sentences] == [texts(one) for one in run(sentences, requests, SETTINGS)]
