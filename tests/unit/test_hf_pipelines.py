"""Pipelines are called as those of transformers 4 were, and return what those returned."""

import math
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import regard
from regard import pipeline, set_seed
from regard.acceleration.snapshot import Snapshot
from regard.data.tokenizer import END
from regard.errors import InputError, ModelError
from regard.inference.results import GeneratedText
from regard.tasks.classification import ClassificationTask
from regard.tasks.directory import write_tasks
from regard.tasks.extractive import ExtractiveTask
from regard.tasks.language_modeling import LanguageModelingTask
from regard.tasks.question_answering import QuestionAnsweringTask
from regard.tasks.summarization import SummarizationTask
from regard.tasks.task import Task
from regard.tasks.text2text import TextToTextTask
from regard.tasks.translation import TranslationTask
from tests.unit.models import SENTENCES, small_model

LABELS = ("bad", "fair", "good")
ROOT = Path(__file__).parents[2]
TASKS: dict[str, Task] = {
    "translation": TranslationTask(),
    "summarization": SummarizationTask(),
    "text2text-generation": TextToTextTask(),
    "text-generation": LanguageModelingTask(),
    "text-classification": ClassificationTask(labels=LABELS),
    "question-answering": ExtractiveTask(window=64, overlap=16),
    "generative": QuestionAnsweringTask(),
}


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the directories of a small model for each task; they have learned nothing."""
    root = tmp_path_factory.mktemp("models")
    for name, task in TASKS.items():
        model, tokenizer = small_model(**task.model_fields_for())
        model.save(root / name)
        tokenizer.save(root / name / "tokenizer.json")
        write_tasks(root / name, [task])
    return {name: root / name for name in TASKS}


@pytest.fixture(scope="module")
def loaded(directories: dict[str, Path]) -> SimpleNamespace:
    """Return a pipeline for each task."""
    names = {name: "question-answering" if name == "generative" else name for name in TASKS}
    made = {name: pipeline(task, model=directories[name]) for name, task in names.items()}
    return SimpleNamespace(**{name.replace("-", "_"): one for name, one in made.items()})


def texts_of(result: list[dict[str, str]], key: str) -> list[str]:
    assert all(list(one) == [key] for one in result)
    return [one[key] for one in result]


@pytest.fixture(params=["translation", "summarization", "text2text-generation"])
def writer(request: pytest.FixtureRequest, loaded: SimpleNamespace) -> tuple[Any, str]:
    """Return a pipeline from text to text, and the key of its texts."""
    task = request.param
    key = {"translation": "translation_text", "summarization": "summary_text"}.get(task, "generated_text")
    made = getattr(loaded, task.replace("-", "_"))
    return (lambda inputs, **options: made(inputs, **to(task), **options)), key


def to(task: str) -> dict[str, str]:
    return {"src_lang": "en", "tgt_lang": "de"} if task == "translation" else {}


def test_a_text_gives_a_list_of_one_and_a_list_of_texts_one_each(writer: tuple[Any, str]) -> None:
    write, key = writer
    alone = [write(text) for text in SENTENCES[:3]]
    assert all(len(texts_of(one, key)) == 1 for one in alone)
    assert write(SENTENCES[:3]) == [one[0] for one in alone]
    assert write(SENTENCES[:1]) == alone[0]
    assert write(tuple(SENTENCES[:3])) == write(SENTENCES[:3])
    assert write([]) == []


def test_several_texts_of_each_are_lists_in_a_list(writer: tuple[Any, str]) -> None:
    write, key = writer
    alone = [write(text, num_return_sequences=3) for text in SENTENCES[:2]]
    assert [len(texts_of(one, key)) for one in alone] == [3, 3]
    assert write(SENTENCES[:2], num_return_sequences=3) == alone


def test_a_generator_gives_results_as_they_are_asked_for(writer: tuple[Any, str]) -> None:
    write, _ = writer
    read: list[str] = []

    def inputs() -> Iterator[str]:
        for text in SENTENCES[:5]:
            read.append(text)
            yield text

    results = write(inputs(), batch_size=2)
    assert next(results) == write(SENTENCES[0])
    assert len(read) == 2
    assert [SENTENCES[0], *(text for text in read[1:])] == read
    assert list(results) == [write(text) for text in SENTENCES[1:5]]


def test_theirs_options_are_those_of_the_search(loaded: SimpleNamespace) -> None:
    made = loaded.text2text_generation
    own = made.pipeline
    options = {
        "num_beams": 4,
        "num_return_sequences": 4,
        "length_penalty": 0.5,
        "early_stopping": True,
        "num_beam_groups": 2,
        "diversity_penalty": 0.3,
        "no_repeat_ngram_size": 2,
        "repetition_penalty": 1.3,
        "min_length": 5,
        "max_length": 12,
    }
    best = own.write(
        {"source": SENTENCES[0]},
        beam=4,
        n_best=4,
        length_penalty=0.5,
        groups=2,
        diversity=0.3,
        no_repeat=2,
        repetition_penalty=1.3,
        min_length=4,
        max_length=11,
    )
    expected = [one.text for one in (best, *best.alternatives)]
    found = texts_of(made(SENTENCES[0], **options), "generated_text")
    assert found[: len(expected)] == expected
    assert len(found) == 4


def test_max_length_counts_the_start_of_a_target_and_max_new_tokens_does_not(loaded: SimpleNamespace) -> None:
    made = loaded.summarization
    expected = made.pipeline.summarize(SENTENCES[0], min_length=6, max_length=7).text
    assert made(SENTENCES[0], min_length=7, max_length=8) == [{"summary_text": expected}]
    assert made(SENTENCES[0], min_new_tokens=6, max_new_tokens=7) == [{"summary_text": expected}]
    assert made(SENTENCES[0], min_new_tokens=6, max_new_tokens=7, max_length=3) == [{"summary_text": expected}]


def test_samples_follow_the_seed_of_torch(loaded: SimpleNamespace) -> None:
    made = loaded.text2text_generation

    def sampled() -> Any:
        return made(SENTENCES[0], do_sample=True, temperature=2.0, top_p=0.95, num_return_sequences=2, max_length=9)

    torch.manual_seed(3)
    first, second = sampled(), sampled()
    assert first != second
    torch.manual_seed(3)
    assert sampled() == first


def test_as_many_texts_come_as_are_asked_for(loaded: SimpleNamespace) -> None:
    copied = loaded.translation("...", tgt_lang="de", num_return_sequences=3)
    assert copied == [{"translation_text": "..."}] * 3


def test_spaces_are_cleaned_up_where_that_is_asked_for() -> None:
    from regard.hf_pipelines.generation import _cleaned

    text = "I do n't know , said Tom . It 's late ! Is n't it ?"
    assert _cleaned(text, {}) == text
    assert _cleaned(text, {"clean_up_tokenization_spaces": True}) == "I don't know, said Tom. It's late! Isn't it?"


def test_languages_are_named_by_the_task_or_by_the_call(directories: dict[str, Path], loaded: SimpleNamespace) -> None:
    path = directories["translation"]
    named = pipeline("translation_en_to_de", model=path)
    expected = loaded.translation.pipeline.translate(SENTENCES[0], to="de").text
    assert named(SENTENCES[0]) == [{"translation_text": expected}]
    assert loaded.translation(SENTENCES[0], tgt_lang="de") == named(SENTENCES[0])
    assert named(SENTENCES[0], tgt_lang="en") == loaded.translation(SENTENCES[0], tgt_lang="en")
    with pytest.raises(InputError, match="the model writes de and en; choose one with tgt_lang, or with a task"):
        loaded.translation(SENTENCES[0])
    with pytest.raises(InputError, match="language 'fr' is not one that this model writes"):
        pipeline("translation_de_to_fr", model=path)(SENTENCES[0])


def test_the_model_of_the_package_is_the_default() -> None:
    translator = pipeline("translation_de_to_en")
    assert translator("Ich habe Hunger.") == [{"translation_text": "I'm hungry."}]
    with pytest.raises(InputError, match="the package has no model that translates from 'fr'; de-en is for de and en"):
        pipeline("translation_fr_to_en")
    with pytest.raises(InputError, match="the package has no model for sentiment-analysis; name one with model="):
        pipeline("sentiment-analysis")


def test_prompts_give_lists_of_texts_that_begin_with_them(loaded: SimpleNamespace) -> None:
    made, prompts = loaded.text_generation, ["Tom", "My old friend", "Nobody sees the"]
    alone = [made(prompt, max_new_tokens=4, do_sample=False) for prompt in prompts]
    assert all(texts_of(one, "generated_text")[0].startswith(text) for one, text in zip(alone, prompts, strict=True))
    assert made(prompts, max_new_tokens=4, do_sample=False) == alone
    assert made(prompts[:1], max_new_tokens=4, do_sample=False) == alone[:1]
    assert list(made(iter(prompts), max_new_tokens=4, do_sample=False)) == alone
    assert [len(one) for one in made(prompts, max_new_tokens=4, num_return_sequences=2)] == [2, 2, 2]


def test_the_prompt_and_its_prefix_may_be_left_out(loaded: SimpleNamespace) -> None:
    made = loaded.text_generation
    ((whole,), (new,)) = (made("Tom sees", max_new_tokens=5, return_full_text=full) for full in (True, False))
    assert whole["generated_text"] == "Tom sees" + new["generated_text"]
    (prefixed,) = made(" sees", prefix="Tom", max_new_tokens=5)
    assert prefixed["generated_text"] == " sees" + new["generated_text"]


def test_lengths_of_generated_text_count_the_prompt(loaded: SimpleNamespace) -> None:
    made = loaded.text_generation
    prompts = ["Tom", "My old friend wrote about"]
    for prompt in prompts:
        read = len(made.tokenizer.encode(prompt))
        found = made(prompt, max_length=read + 6, min_length=read + 6)
        assert found == made(prompt, max_new_tokens=6, min_new_tokens=6)
        own = made.pipeline.generate(prompt, max_length=6, min_length=6)
        assert len(own.tokens) == read + 6
        assert found == [{"generated_text": own.text}]
    both = made(prompts, max_length=20)
    assert both == [made(prompt, max_length=20) for prompt in prompts]
    with pytest.raises(InputError, match="max_length is 2, of which"):
        made(prompts[1], max_length=2)


def test_a_chat_is_refused(loaded: SimpleNamespace) -> None:
    with pytest.raises(InputError, match="a prompt is a text; chats are for models that were trained on them"):
        loaded.text_generation([{"role": "user", "content": "Hello"}])


def test_a_text_gives_its_best_label(loaded: SimpleNamespace) -> None:
    made = loaded.text_classification
    (best,) = made(SENTENCES[0])
    own = made.pipeline.classify(SENTENCES[0])
    assert best == {"label": own.label, "score": pytest.approx(own.score)}
    alone = [made(text)[0] for text in SENTENCES[:3]]
    for several in (made(SENTENCES[:3]), list(made(iter(SENTENCES[:3]), batch_size=2))):
        for one, expected in zip(several, alone, strict=True):
            assert one == {**expected, "score": pytest.approx(expected["score"], rel=1e-4)}
    assert made({"text": SENTENCES[0]}) == best


def test_labels_come_in_lists_where_several_are_asked_for(
    directories: dict[str, Path], loaded: SimpleNamespace
) -> None:
    made = loaded.text_classification
    every = made(SENTENCES[0], top_k=None)
    assert {one["label"] for one in every} == {*LABELS}
    assert [one["score"] for one in every] == sorted((one["score"] for one in every), reverse=True)
    assert made(SENTENCES[0], top_k=2) == every[:2]
    assert made(SENTENCES[0], top_k=1) == every[:1]
    assert made(SENTENCES[:1], top_k=1) == [every[:1]]
    in_order = sorted(every, key=lambda one: LABELS.index(one["label"]))
    assert made(SENTENCES[0], return_all_scores=True) == [in_order]
    assert made(SENTENCES[:1], return_all_scores=True) == [in_order]
    assert made(SENTENCES[0], return_all_scores=False) == every[:1]
    # As in theirs, a list more where it was given when the pipeline was made.
    always = pipeline("text-classification", model=directories["text-classification"], top_k=None)
    assert always(SENTENCES[0]) == [every]


def test_scores_are_what_the_function_makes_of_logits(loaded: SimpleNamespace) -> None:
    made = loaded.text_classification
    tokens = [*made.tokenizer.encode(SENTENCES[0]), made.tokenizer.number(END)]
    with torch.no_grad():
        logits = made.model(torch.tensor([tokens]))[0]
    for name, scores in (("softmax", logits.softmax(0)), ("sigmoid", logits.sigmoid()), ("none", logits)):
        found = made(SENTENCES[0], top_k=None, function_to_apply=name)
        assert {one["label"]: one["score"] for one in found} == pytest.approx(
            dict(zip(LABELS, scores.tolist(), strict=True)), abs=1e-5
        )
    with pytest.raises(InputError, match="function_to_apply is 'tanh'; it is one of"):
        made(SENTENCES[0], function_to_apply="tanh")


def test_a_text_is_cut_where_that_is_asked_for(loaded: SimpleNamespace) -> None:
    made = loaded.text_classification
    long = " ".join(SENTENCES)
    tokens, offsets = made.tokenizer.encode_with_offsets(long)
    assert len(tokens) > 20
    cut = long[: offsets[18][1]]
    assert made(long, truncation=True, max_length=20, top_k=None) == made(cut, top_k=None)
    assert made(long, truncation=True, top_k=None) == made(long, top_k=None)
    with pytest.raises(InputError, match="a text, or a dict with text alone, was expected"):
        made({"text": "a", "text_pair": "b"})


CONTEXT = "Tom has found the house. Mary likes three small birds. Nobody wrote about Boston in the rain."
QUESTION = "Who has found it?"


def test_a_question_gives_a_span_of_its_context(loaded: SimpleNamespace) -> None:
    ask = loaded.question_answering
    found = ask(question=QUESTION, context=CONTEXT)
    assert list(found) == ["score", "start", "end", "answer"]
    assert found["answer"] == CONTEXT[found["start"] : found["end"]] != ""
    assert 0.0 < found["score"] < 1.0
    asked = {"question": QUESTION, "context": CONTEXT}
    for again in (ask(asked), ask([asked]), ask(QUESTION, CONTEXT), ask(data=asked), ask(X=[asked])):
        assert again == found
    assert ask(question=[QUESTION], context=[CONTEXT]) == found


def test_several_questions_give_a_list(loaded: SimpleNamespace) -> None:
    ask, questions = loaded.question_answering, [QUESTION, "Where?", "Who likes birds?"]
    alone = [ask(question=question, context=CONTEXT) for question in questions]
    dicts = [{"question": question, "context": CONTEXT} for question in questions]
    for several in (
        ask(question=questions, context=CONTEXT),
        ask(question=questions, context=[CONTEXT] * 3),
        ask(dicts),
        ask(*dicts),
        list(ask(one for one in dicts)),
    ):
        for one, expected in zip(several, alone, strict=True):
            assert one == {**expected, "score": pytest.approx(expected["score"], rel=1e-4)}


def test_the_score_is_the_probability_of_start_and_end(loaded: SimpleNamespace) -> None:
    ask, context = loaded.question_answering, "Tom has found it."
    found = ask(question="Who?", context=context, align_to_words=False)
    tokenizer = ask.tokenizer
    (window,) = ExtractiveTask(window=64, overlap=16).windows(context, "Who?", tokenizer)
    with torch.no_grad():
        logits = ask.model(torch.tensor([[*window.tokens, tokenizer.number(END)]]))[0]
    places = [0, *range(window.first, window.first + len(window.offsets))]
    start, end = logits[places].softmax(0).unbind(1)
    best = max(float(start[i] * end[j]) for i in range(1, len(places)) for j in range(i, min(len(places), i + 30)))
    assert found["score"] == pytest.approx(best, rel=1e-4)
    every = ask(question="Who?", context=context, top_k=1000, handle_impossible_answer=True)
    assert [one["score"] for one in every] == sorted((one["score"] for one in every), reverse=True)


def test_the_best_answers_and_none_among_them(loaded: SimpleNamespace) -> None:
    ask = loaded.question_answering
    best = ask(question=QUESTION, context=CONTEXT)
    three = ask(question=QUESTION, context=CONTEXT, top_k=3)
    assert len(three) == 3
    assert three[0] == best
    assert ask(question=QUESTION, context=CONTEXT, topk=3) == three
    every = ask(question=QUESTION, context=CONTEXT, top_k=1000, handle_impossible_answer=True)
    (none,) = (one for one in every if not one["answer"])
    assert (none["start"], none["end"]) == (0, 0)
    assert all(one["answer"] for one in ask(question=QUESTION, context=CONTEXT, top_k=1000))


def test_answers_are_whole_words_unless_that_is_turned_off(loaded: SimpleNamespace) -> None:
    ask = loaded.question_answering
    for one in ask(question=QUESTION, context="Extraordinarily incomprehensible", top_k=20):
        assert one["answer"] in ("Extraordinarily", "incomprehensible", "Extraordinarily incomprehensible")
    parts = ask(question=QUESTION, context="Extraordinarily incomprehensible", top_k=20, align_to_words=False)
    assert len(parts) > 3


def test_answers_are_no_longer_than_allowed_and_windows_as_large_as_said(loaded: SimpleNamespace) -> None:
    ask = loaded.question_answering
    found = ask(question=QUESTION, context=CONTEXT, max_answer_len=1, top_k=30, align_to_words=False)
    offsets = {CONTEXT[start:end].lstrip().rstrip(" .") for start, end in ask.tokenizer.encode_with_offsets(CONTEXT)[1]}
    assert {one["answer"] for one in found} <= offsets
    narrow = ask(question="Who?", context=CONTEXT * 5, max_seq_len=24, doc_stride=8, top_k=3)
    assert all(one["answer"] == (CONTEXT * 5)[one["start"] : one["end"]] for one in narrow)
    assert ask(question="Who?", context=CONTEXT, max_seq_len=24)["answer"]
    with pytest.raises(InputError, match=r"overlap 24 is not less than the window .*doc_stride is overlap here"):
        ask(question="Who?", context=CONTEXT, max_seq_len=24, doc_stride=24)


def test_a_model_that_writes_answers_them_too(loaded: SimpleNamespace) -> None:
    ask = loaded.generative
    found = ask(question=QUESTION, context=CONTEXT, max_answer_len=5)
    own = ask.pipeline.answer(QUESTION, CONTEXT, n_best=2, max_length=5)
    written = [one.text for one in (own, *own.alternatives)]
    assert found["answer"] == next(text for text in written if text)
    none = ask(question=QUESTION, context=CONTEXT, max_answer_len=5, handle_impossible_answer=True)
    assert none["answer"] == own.text
    assert 0.0 < found["score"] <= 1.0
    assert (found["start"], found["end"]) == (-1, -1)
    every = ask(question=QUESTION, context=CONTEXT, top_k=3, max_answer_len=5, handle_impossible_answer=True)
    best = ask.pipeline.answer(QUESTION, CONTEXT, n_best=4, max_length=5)
    assert [one["answer"] for one in every] == [one.text for one in (best, *best.alternatives)][:3]


def test_a_written_answer_has_its_place_in_the_context_if_it_is_there() -> None:
    from regard.hf_pipelines.question_answering import _written_answer

    written = GeneratedText("house", -0.5, ["house"])
    found = _written_answer(written, CONTEXT, power=1.0)
    assert CONTEXT[found["start"] : found["end"]] == found["answer"] == "house"
    assert found["score"] == pytest.approx(math.exp(-1.0))  # two tokens: the word and the end


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"question": QUESTION}, "a question and the context to find its answer in were expected"),
        ({"context": CONTEXT}, "a question and the context to find its answer in were expected"),
        ({"question": QUESTION, "context": " "}, "has no context to find the answer in"),
        ({"question": [QUESTION] * 2, "context": [CONTEXT]}, "there are 2 questions and 1 contexts"),
        ({"data": [{"question": QUESTION}] * 2}, "an input has no context; a dict with question and context"),
        ({"question": QUESTION, "context": CONTEXT, "top_k": 0}, "top_k is 0; a whole number of at least 1"),
        ({"question": QUESTION, "context": CONTEXT, "num_beams": 2}, "has no option 'num_beams'"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused_in_a_sentence(
    loaded: SimpleNamespace, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        loaded.question_answering(**given)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_beam": 3}, "a pipeline for summarization has no option 'num_beam'; did you mean num_beams?"),
        ({"colour": "red"}, "has no option 'colour'; it has .*num_beams"),
        ({"repetition_penalty": 0.9}, "repetition_penalty is 0.9; input should be greater than or equal to 1"),
        ({"num_beams": 2, "num_return_sequences": 3}, r"n_best is 3, more than the beam of 2 .*num_beams is beam here"),
        ({"do_sample": True, "num_beams": 3}, "is not supported; leave one of them out"),
        ({"max_length": 0}, "max_length is 0; a whole number of at least 1"),
        ({"max_length": 1}, "max_length is 1, of which 1 are there before the first is written"),
        ({"min_length": -1}, "min_length is -1; a whole number of at least 0"),
        ({"temperature": 0.0, "do_sample": True}, "temperature is 0.0"),
        ({"batch_size": 0}, "batch_size is 0; a whole number"),
    ],
)
def test_an_option_that_cannot_be_had_is_refused_in_a_sentence(
    loaded: SimpleNamespace, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        list(loaded.summarization(iter(SENTENCES[:1]), **options))


@pytest.mark.parametrize(
    "options",
    [
        {"framework": "pt", "device": -1, "tokenizer": None, "use_fast": True},
        {"device": "cpu", "torch_dtype": torch.float32, "revision": "main", "model_kwargs": {}},
        {"device": torch.device("cpu"), "token": None, "trust_remote_code": False, "batch_size": 8},
    ],
)
def test_options_that_change_nothing_are_taken(
    directories: dict[str, Path], loaded: SimpleNamespace, options: dict[str, Any]
) -> None:
    made = pipeline("summarization", model=str(directories["summarization"]), **options)
    assert made(SENTENCES[0], padding=True, num_workers=2, use_cache=True) == loaded.summarization(SENTENCES[0])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tokenizer": "t5-base"}, "tokenizer='t5-base' is not supported: a model directory has all"),
        ({"framework": "tf"}, "framework='tf' is not supported: models are PyTorch's"),
        ({"torch_dtype": torch.float16}, "torch_dtype=torch.float16 is not supported"),
        ({"device": "cpu", "device_map": "auto"}, "give device or device_map, not both"),
        ({"num_beam": 3}, "has no option 'num_beam'; did you mean num_beams?"),
    ],
)
def test_what_would_change_the_answer_and_cannot_be_had_is_refused(
    directories: dict[str, Path], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        pipeline("summarization", model=directories["summarization"], **options)


def test_the_tokenizer_of_the_model_itself_is_taken(directories: dict[str, Path]) -> None:
    path = str(directories["summarization"])
    own = regard.load(path)
    assert pipeline("summarization", model=path, tokenizer=path)(SENTENCES[0])
    assert pipeline("summarization", model=own, tokenizer=own.source)(SENTENCES[0])


def test_options_of_every_call_are_given_once(directories: dict[str, Path], loaded: SimpleNamespace) -> None:
    made = pipeline("summarization", model=directories["summarization"], max_new_tokens=3, num_beams=2)
    assert made(SENTENCES[0]) == loaded.summarization(SENTENCES[0], max_new_tokens=3, num_beams=2)
    assert made(SENTENCES[0], max_new_tokens=6) == loaded.summarization(SENTENCES[0], max_new_tokens=6, num_beams=2)


def test_without_a_task_it_is_the_models_own(directories: dict[str, Path]) -> None:
    assert pipeline(model=directories["question-answering"]).task == "question-answering"
    assert pipeline(model=regard.load(directories["text-generation"])).task == "text-generation"
    with pytest.raises(InputError, match="a task or a model was expected; tasks are translation, "):
        pipeline()


def test_a_model_of_another_task_is_refused(directories: dict[str, Path]) -> None:
    path = directories["summarization"]
    with pytest.raises(ModelError, match=r"is for summarization \(regard summarize\), not translation"):
        pipeline("translation_en_to_de", model=path)
    with pytest.raises(ModelError, match="the model is for summarization, not translation"):
        pipeline("translation", model=regard.load(path))


def test_a_task_that_there_is_not_is_refused() -> None:
    with pytest.raises(InputError, match="task 'summarisation' is not known; did you mean summarization?"):
        pipeline("summarisation")
    with pytest.raises(InputError, match="task 'fill-mask' is not known; it is one of translation, "):
        pipeline("fill-mask")


def test_what_is_no_text_is_refused(loaded: SimpleNamespace) -> None:
    with pytest.raises(InputError, match=r"inputs\[1\] is a int; a string was expected"):
        loaded.summarization(["a", 5])
    with pytest.raises(InputError, match="the input is a int; a text, a list or another iterable was expected"):
        loaded.summarization(5)


def test_a_script_for_transformers_runs_with_its_import_changed(
    directories: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = ROOT / "examples" / "from_huggingface.py"
    code = [line for line in script.read_text(encoding="utf-8").split('"""')[2].splitlines() if "regard" in line]
    assert code == ["from regard import pipeline  # with transformers 4: from transformers import pipeline"]
    given = [f"{name}={path}" for name, path in directories.items() if name not in ("translation", "generative")]
    monkeypatch.setattr("sys.argv", [str(script), "translation=de-en", *given])
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("I'm hungry.\n")
    assert "Ich bin müde.\n" in printed
    assert "['answer', 'end', 'score', 'start']" in printed
    assert "label: " in printed
    monkeypatch.setattr("sys.argv", [str(script), f"question-answering={directories['generative']}"])
    runpy.run_path(str(script), run_name="__main__")
    assert "answer: " in capsys.readouterr().out


def test_summaries_are_texts_too(directories: dict[str, Path], loaded: SimpleNamespace) -> None:
    made = pipeline("text2text-generation", model=directories["summarization"])
    expected = [{"generated_text": one["summary_text"]} for one in loaded.summarization(SENTENCES[:2])]
    assert made(SENTENCES[:2]) == expected


def test_set_seed_makes_samples_the_same(loaded: SimpleNamespace) -> None:
    def sampled(seed: int) -> Any:
        set_seed(seed)
        return loaded.text_generation(text_inputs="Tom", do_sample=True, max_new_tokens=8, num_return_sequences=2)

    assert sampled(1) == sampled(1)
    assert len({str(sampled(seed)) for seed in range(5)}) > 1


def test_questions_may_be_made_beforehand(loaded: SimpleNamespace) -> None:
    sample = loaded.question_answering.create_sample(question=QUESTION, context=CONTEXT)
    assert loaded.question_answering(sample) == loaded.question_answering(question=QUESTION, context=CONTEXT)
    scores = [one["score"] for one in loaded.generative(question=QUESTION, context=CONTEXT, top_k=3)]
    assert scores == sorted(scores, reverse=True)
    assert loaded.question_answering(sample, doc_stride=192, max_seq_len=384)


class Rows:
    """A dataset that is read by index, as torch's are."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> str:
        return self.texts[index]


def test_a_dataset_is_read_by_index() -> None:
    translator = pipeline("translation_en_to_de", model="de-en")
    texts = ["I am tired.", "I am hungry."]
    assert list(translator(Rows(texts), batch_size=2)) == [[one] for one in translator(texts)]


def test_token_ids_are_returned_in_place_of_texts() -> None:
    translator = pipeline("translation_en_to_de", model="de-en")
    (output,) = translator("I am tired.", return_tensors=True)
    (text,) = translator("I am tired.")
    assert output.keys() == {"translation_token_ids"}
    assert translator.pipeline.target.decode(output["translation_token_ids"][:-1].tolist()) == text["translation_text"]


def test_a_model_that_nobody_asked_for_is_not_compared_in_each_call(
    directories: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = pipeline("translation", model=directories["translation"])
    assert translator.device.type == "cpu"
    loaded = pipeline("translation", model=translator.pipeline, device="cpu", config=translator.pipeline.config)
    compared: list[Snapshot] = []
    read_weights = Snapshot._read_weights

    def count(self: Snapshot) -> bytes:
        compared.append(self)
        return read_weights(self)

    monkeypatch.setattr(Snapshot, "_read_weights", count)
    for made in (translator, loaded):
        made(SENTENCES[:1], truncation=True, src_lang="de", tgt_lang="en")
    assert not compared
    translator.model.eval()  # whoever has the model may change it
    translator(SENTENCES[0], src_lang="de", tgt_lang="en")
    assert compared
