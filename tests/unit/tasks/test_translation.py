"""Texts in, texts out: whatever stands beside them, whatever is asked of them, whatever is in them."""

import random
import re
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.acceleration.packed_decoder import PackedBackend, PackedDecoder
from regard.data import Tokenizer
from regard.data.corpora import Example
from regard.decoding import Request, Scheduler, SearchSettings, search
from regard.errors import ConfigError, InputError
from regard.inference.decode import decode_requests
from regard.tasks.translation import TranslationTask, Translator
from tests.unit.models import SENTENCES, small_model, small_pipeline


@pytest.fixture(scope="module")
def pipeline() -> Translator:
    return small_pipeline()


@pytest.fixture(scope="module")
def exact() -> Translator:
    return small_pipeline(torch.float64)


@pytest.mark.parametrize("options", [dict(beam=5), dict(beam=1), dict(beam=4, groups=2), dict(sample=True, seed=3)])
def test_neighbours_and_their_order_change_nothing(exact: Translator, options: dict[str, int]) -> None:
    texts = SENTENCES[::6]
    together = [made.text for made in exact.translate(texts, to="de", **options)]
    assert len(set(together)) > 5
    order = random.Random(1).sample(range(len(texts)), len(texts))
    shuffled = exact.translate([texts[index] for index in order], to="de", **options)
    assert [made.text for made in shuffled] == [together[index] for index in order]
    alone = [exact.translate(text, to="de", **options).text for text in texts[:8]]
    assert alone == together[:8]


@pytest.mark.parametrize("precision", ["float", "int8"])
def test_in_single_precision_only_what_is_as_good_may_differ(precision: str) -> None:
    pipeline = small_pipeline(precision=precision)
    texts = SENTENCES[::3]
    together = pipeline.translate(texts, to="en")
    alone = [pipeline.translate(text, to="en") for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert one.text == other.text or abs(one.score - other.score) < 1e-4


def test_scores_of_n_best_are_what_forcing_them_gives(pipeline: Translator) -> None:
    texts = SENTENCES[:20]
    for text, made in zip(texts, pipeline.translate(texts, to="de", beam=4, n_best=4), strict=True):
        found = [made, *made.alternatives]
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        for one in found:
            numbers = [pipeline.target.number(token) for token in one.tokens]
            (logs,) = pipeline.token_log_probabilities([(pipeline.encoded(text, "de"), numbers)])
            assert sum(logs) / (len(numbers) + 1) == pytest.approx(one.score, abs=1e-4)


def test_scores_do_not_depend_on_what_else_is_scored(pipeline: Translator) -> None:
    pairs = list(zip(SENTENCES[:70], SENTENCES[30:], strict=False))
    together = pipeline.score([source for source, _ in pairs], [target for _, target in pairs], to="en")
    for (source, target), found in list(zip(pairs, together, strict=True))[::7]:
        (alone,) = pipeline.score([source], [target], to="en")
        assert alone.log_probability == pytest.approx(found.log_probability, abs=1e-4)
        assert found.tokens == pipeline.target.encode(target)
    with pytest.raises(InputError, match="1 sources cannot be scored with 2 targets"):
        pipeline.score(["a"], ["b", "c"], to="en")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(["house", "bird", "green", "Tom", "rain door"]), max_size=2, unique=True),
    st.lists(st.sampled_from(["cat", "a", "not"]), max_size=2, unique=True),
    st.sampled_from(["", "Mary", "The old"]),
    st.sampled_from([dict(beam=1), dict(beam=5), dict(beam=4, groups=2, n_best=3), dict(sample=True, n_best=2)]),
)
def test_wishes_are_met_in_every_translation(
    require: list[str], forbid: list[str], prefix: str, options: dict[str, int]
) -> None:
    made = _literate().translate(SENTENCES[7], to="de", require=require, forbid=forbid, prefix=prefix, **options)
    for one in (made, *made.alternatives):
        for phrase in require:
            forms = f"{re.escape(phrase)}|{re.escape(phrase[0].upper() + phrase[1:])}"
            assert re.search(rf"(?<!\w)({forms})(?!\w)", one.text), (phrase, one.text)
        assert one.text.startswith(prefix)
        for word in forbid:
            assert not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", one.text, re.IGNORECASE), (word, one.text)


@cache
def _shared() -> Translator:
    return small_pipeline()


@cache
def _literate() -> Translator:
    """A model that writes no stray bytes, which would vanish from its texts."""
    model, tokenizer = small_model(output_bias=True)
    assert model.output.bias is not None
    with torch.no_grad():
        stray = [number for number in range(tokenizer.vocab_size) if isinstance(tokenizer.spelled(number), int)]
        model.output.bias[stray] = -100.0
    return Translator(model, tokenizer, tokenizer, precision="float")


def test_streamed_pieces_are_the_translation(pipeline: Translator) -> None:
    text = "Tom sees it. My old friend likes the house!  42"
    pieces = list(pipeline.stream(text, to="en", beam=3))
    assert "".join(pieces) == pipeline.translate(text, to="en", beam=3).text
    assert len(pieces) > 4


def test_what_has_no_words_stays_and_strange_characters_come_through(pipeline: Translator) -> None:
    for text in ("", "   ", "123", " 🙂🙂 ", "— … —", "日本語", "\u200b", "\t-\t"):
        assert pipeline.translate(text, to="de").text == text
    for beam in (1, 4):
        made = pipeline.translate("Tom ☀ likes 日本 and ☀.", to="de", beam=beam)
        assert made.text.count("☀") == 2
        assert "日本" in made.text


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=5))
def test_any_text_gives_one_line_of_text(texts: list[str]) -> None:
    made = _shared().translate(texts, to="en", beam=2)
    assert len(made) == len(texts)
    for one in made:
        one.text.encode()
        assert len(one.text.splitlines()) <= 1


def test_long_texts_are_cut_into_pieces_and_nothing_is_lost(pipeline: Translator) -> None:
    made = pipeline.translate(["Tom sees it. " * 40, "x" * 3000], to="de", beam=1)
    assert made[0].text.endswith(" ")
    assert len(made[0].tokens) > 40
    with pytest.raises(InputError, match="too long to be translated whole"):
        pipeline.translate("Tom sees it. " * 400, to="de", require=["house"])


def test_a_text_is_translated_whole_where_the_task_says_so() -> None:
    model, tokenizer = small_model()
    whole = Translator(
        model, tokenizer, tokenizer, precision="float", task=TranslationTask(sentences=False), name="whole"
    )
    text = "Tom sees it. " * 30 + "a?b:<c>!" * 20
    made = whole.translate(f" {text}", to="de", beam=1)
    (expected, *_) = whole.decode([whole.encoded(text.strip(), "de")], beam=1)[0]
    assert made.tokens == [tokenizer.token(number) for number in expected.tokens]
    assert "".join(whole.stream(text, to="de", beam=1)).strip() == made.text.strip()
    assert whole.translate("", to="de").text == ""


def test_learned_positions_have_an_end_that_is_respected() -> None:
    pipeline = small_pipeline(positions="learned", max_positions=24)
    made = pipeline.translate("My old friend wrote about Boston in the rain and " * 4, to="en", beam=2)
    assert made.tokens


def test_alignments_point_into_the_source(pipeline: Translator) -> None:
    made = pipeline.translate("Tom sees it. Mary has found a green door.", to="de", align=True)
    assert made.source_tokens is not None
    assert made.alignment is not None
    assert [target for _, target in made.alignment] == list(range(len(made.tokens)))
    assert all(0 <= source < len(made.source_tokens) for source, _ in made.alignment)
    record = pipeline.attention("Tom sees it.", "Mary.", to="de")
    assert record.mean_TS().shape == (len(record.target), len(record.source))
    assert record.mean_TS().sum(1).allclose(torch.ones(len(record.target)))


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (dict(to="fr"), InputError, "language 'fr' is not one that this model writes; it writes de, en"),
        (dict(), InputError, "choose one with to="),
        (dict(to="de", beam=0), ConfigError, "beam is 0"),
        (dict(to="de", beam="5"), ConfigError, "beam is '5'"),
        (dict(to="de", n_best="a"), ConfigError, "n_best is 'a'"),
        (dict(to="de", bean=3), ConfigError, "beam"),
        (dict(to="de", require=[""]), InputError, "a word to require is empty"),
        (dict(to="de", require=["Tom"], forbid=["Tom"]), InputError, "cannot come without a forbidden one"),
    ],
)
def test_what_cannot_be_done_is_said(pipeline: Translator, options: dict[str, int], error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        pipeline.translate("Tom sees it.", **options)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda p: p.translate("\ud800", to="de"), "half a character"),
        (lambda p: p.translate("Tom", to="de", require=["\ud800"]), "half a character"),
        (lambda p: list(p.stream("\ud800", to="de")), "half a character"),
        (lambda p: p.score("Tom", "\ud800", to="de"), "half a character"),
        (lambda p: p.attention("\ud800", "Tom", to="de"), "half a character"),
        (lambda p: p.translate(None, to="de"), "texts is a NoneType; a string, or a list of strings"),
        (lambda p: p.translate(b"Tom", to="de"), "texts is a bytes"),
        (lambda p: p.translate(["Tom", 3], to="de"), r"texts\[1\] is a int; a string was expected"),
        (lambda p: p.translate("Tom", to="de", forbid=[3]), r"forbid\[0\] is a int"),
        (lambda p: p.translate("Tom", to="de", prefix=3), "prefix is a int"),
        (lambda p: p.translate("Tom", to="de", prefix=["Tom"]), "prefix is a list; a string was expected"),
        (lambda p: p.translate("Tom", to="de", prefix="the cat", forbid=["cat"]), "must start with has a forbidden"),
        (lambda p: p.translate("Tom", to="de", require=["x" * 900]), "has 900 characters; at most 200"),
        (lambda p: list(p.stream(["Tom"], to="de")), r"texts\[0\] is a list"),
        (lambda p: p.score(["Tom"], "Tom", to="de"), "one of sources and targets is a text and the other is not"),
        (lambda p: p.attention(3, "Tom", to="de"), r"source\[0\] is a int"),
    ],
)
def test_what_is_no_text_is_refused_in_a_sentence(
    pipeline: Translator, call: Callable[[Translator], object], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        call(pipeline)


def test_a_precision_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match="precision 'half' is not known; it is one of auto, float, int8"):
        small_pipeline(precision="half")


def test_texts_are_not_taken_for_token_numbers(pipeline: Translator) -> None:
    for sources in ("Tom", ["Tom"]):
        with pytest.raises(InputError, match="translate takes texts"):
            pipeline.decode(sources)  # type: ignore[arg-type]


def test_a_single_pair_is_scored_as_one(pipeline: Translator) -> None:
    alone = pipeline.score("Tom sees it.", "Mary likes it.", to="en")
    (listed,) = pipeline.score(["Tom sees it."], ["Mary likes it."], to="en")
    assert alone == listed


@pytest.mark.parametrize("space", ["\u00a0", "\t", "\u2009", "\u3000", "  ", "\u200b"])
def test_white_space_of_any_kind_is_a_space(pipeline: Translator, space: str) -> None:
    plain = pipeline.translate("Tom sees it", to="de")
    assert pipeline.translate(f"Tom{space}sees it", to="de") == plain
    assert pipeline.score(f"Tom{space}sees it", "Tom", to="de") == pipeline.score("Tom sees it", "Tom", to="de")


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\u2028", "\u2029", "\x85", "\v", "\f", "\x1c"])
def test_lines_are_translated_by_themselves(pipeline: Translator, line_break: str) -> None:
    one, other = pipeline.translate(["Tom sees it", "the cat"], to="de")
    both = pipeline.translate(f"Tom sees it{line_break}the cat", to="de")
    assert both.text == f"{one.text}{' ' * len(line_break)}{other.text}"


def test_markup_around_sentences_is_copied(pipeline: Translator) -> None:
    one, other = pipeline.translate(["Tom sees it.", "Mary likes it."], to="de")
    both = pipeline.translate("<p>Tom sees it.</s> Mary likes it. <br/></p>", to="de")
    assert both.text == f"<p>{one.text}</s> {other.text} <br/></p>"


def test_a_run_of_letters_that_is_no_word_is_copied(pipeline: Translator) -> None:
    began = time.perf_counter()
    letters = "abcdefghij" * 10_000
    (sentence,) = pipeline.translate(["Tom sees it."], to="de")
    made = pipeline.translate(f"Tom sees it. {letters} Tom sees it.", to="de")
    assert made.text == f"{sentence.text} {letters} {sentence.text}"
    assert time.perf_counter() - began < 5.0


def test_sentences_for_which_nothing_was_written_are_named() -> None:
    model, tokenizer = small_model(output_bias=True)
    assert model.output.bias is not None
    with torch.no_grad():
        model.output.bias[2] = 1000.0  # a model that ends every sentence at once
    made = Translator(model, tokenizer, tokenizer, precision="float").translate("Tom sees it. 42!", to="de")
    assert made.text == " 42!"
    assert made.untranslated == ("Tom sees it.",)


def test_alternatives_are_distinct_texts(pipeline: Translator) -> None:
    for made in pipeline.translate(SENTENCES[::9], to="de", n_best=5):
        texts = [made.text, *(other.text for other in made.alternatives)]
        assert len(set(texts)) == len(texts)


def test_alternatives_are_distinct_texts_when_sampled(pipeline: Translator) -> None:
    for made in pipeline.translate(SENTENCES[::9], to="de", n_best=5, sample=True, top_k=2, temperature=0.1):
        texts = [made.text, *(other.text for other in made.alternatives)]
        assert len(set(texts)) == len(texts)


def test_a_sentence_that_comes_again_is_decoded_once(pipeline: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def counting(backend: Any, sources: Any, *rest: Any, **options: Any) -> Any:
        decoded.append(len(sources))
        return decode_requests(backend, sources, *rest, **options)

    monkeypatch.setattr("regard.inference.pipeline.decode_requests", counting)
    first, line, other = pipeline.translate(["Tom sees it.", "Tom sees it. " * 50, "Mary sees it."], to="de")
    assert decoded == [2]
    assert line.text == f"{first.text} " * 50
    assert other.text != first.text


def test_forbidding_alone_leaves_sentences_and_signs_as_they_are(pipeline: Translator) -> None:
    made = pipeline.translate("Tom sees it. 🙂🙂", to="de", forbid=["cat"], beam=2)
    assert made.text.endswith(" 🙂🙂")


def test_the_cache_is_not_as_large_as_what_never_comes_together() -> None:
    pipeline = small_pipeline()
    sources = [pipeline.encoded(SENTENCES[0] * 6, "de"), *(pipeline.encoded("it", "de") for _ in range(300))]
    requests = [Request(limit=pipeline.limit(source)) for source in sources]
    decoder = PackedDecoder(PackedBackend(pipeline.model), sources, 1)
    greedy = SearchSettings(beam=1)
    scheduler = Scheduler(requests, greedy, slots=lambda number: 300 if number else 1)
    events = search(decoder, scheduler, greedy, start=1, end=2, never=[0, 1])
    with torch.no_grad():
        assert len(list(events)) == len(sources)
    assert decoder._state.past[0].size(1) <= 64


def test_a_maximum_length_holds_for_each_sentence(pipeline: Translator) -> None:
    one, two = pipeline.translate(["Tom sees the house.", "Tom sees the house. Mary likes it."], to="de", max_length=3)
    assert one.cut
    assert len(one.tokens) == 3
    assert len(two.tokens) == 6
    assert "".join(pipeline.stream("Tom sees the house.", to="de", max_length=3)) == one.text
    longer = pipeline.translate("it", to="de", beam=1, max_length=40)
    assert len(longer.tokens) == 40 > len(pipeline.translate("it", to="de", beam=1).tokens)


def test_a_maximum_length_leaves_no_room_for_what_is_required(pipeline: Translator) -> None:
    with pytest.raises(InputError, match="there is room for 1"):
        pipeline.translate("Tom sees it.", to="de", require=["three small birds"], max_length=1)


def test_signs_that_do_not_fit_the_maximum_length_are_not_required(pipeline: Translator) -> None:
    assert "üß" in pipeline.translate("Tom sieht Müßiggang", to="de", max_length=6).text
    assert len(pipeline.translate("Tom sieht Müßiggang", to="de", max_length=3).tokens) <= 3


def test_a_model_of_several_tasks_has_the_tag_of_the_task_before_that_of_the_language() -> None:
    tokenizer = Tokenizer.train(SENTENCES, vocab_size=400, tags=["<translate>", "<2de>", "<2en>"])
    model = small_model()[0]
    pipeline = Translator(model, tokenizer, tokenizer, precision="float", task=TranslationTask(tag="<translate>"))
    tags = [tokenizer.number("<translate>"), tokenizer.number("<2de>")]
    assert pipeline.languages == ["de", "en"]
    assert pipeline.encoded("Tom sees it.", "de") == [*tags, *tokenizer.encode("Tom sees it."), 2]


def test_predictions_are_by_the_methods_of_the_task() -> None:
    class Shouted(TranslationTask):
        def source(self, example: Example) -> str:
            return str(example["source"]).swapcase()

        def answer(self, text: str) -> str:
            return f"> {text}"

    model, tokenizer = small_model()
    pipeline = Translator(model, tokenizer, tokenizer, precision="float", task=Shouted())
    expected = pipeline.translate(SENTENCES[0].swapcase(), to="de").text
    assert pipeline.predictions([{"source": SENTENCES[0]}], to="de") == [f"> {expected}"]
