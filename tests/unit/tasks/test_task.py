"""Tasks: examples to texts and tokens, and how several go together."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from regard.data import Tokenizer
from regard.data.examples import Example
from regard.data.squad import Answer
from regard.errors import ConfigError, DataError, InputError, ModelError
from regard.tasks.classification import ClassificationTask
from regard.tasks.directory import TASKS_FILE, read_tasks, write_tasks
from regard.tasks.evaluation import evaluate_examples
from regard.tasks.language_modeling import LanguageModelingTask
from regard.tasks.question_answering import QuestionAnsweringTask
from regard.tasks.summarization import SummarizationTask
from regard.tasks.task import Task
from regard.tasks.text2text import TextToText, TextToTextTask
from regard.tasks.translation import TranslationTask
from regard.training import Run
from tests.unit.models import small_model


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the cat sat on the mat", "a dog ran"], vocab_size=400)


def test_pairs_of_texts_are_encoded_as_they_are_whatever_the_task(tokenizer: Tokenizer) -> None:
    document = {"document": "the cat sat", "summary": "a cat"}
    (pair,) = SummarizationTask().encode([document], tokenizer, tokenizer)
    assert pair == (tokenizer.encode("the cat sat"), tokenizer.encode("a cat"))


def test_what_decides_about_encoded_examples_is_empty_for_plain_pairs_alone() -> None:
    assert TranslationTask().identity == ""
    assert SummarizationTask().identity != ""
    assert LanguageModelingTask(block=8).identity != LanguageModelingTask(block=9).identity
    assert SummarizationTask(tag="<x>").identity == SummarizationTask().identity


def test_a_question_comes_before_its_context_unless_it_is_last_and_any_answer_counts() -> None:
    task = QuestionAnsweringTask()
    asked = {"context": "Anna is in the garden.", "question": "Where is Anna?", "answers": [Answer("garden", None)]}
    assert task.source(asked) == "Where is Anna? Anna is in the garden."
    assert QuestionAnsweringTask(question="last").source(asked) == "Anna is in the garden. Where is Anna?"
    assert task.target(asked) == "garden"
    assert task.references({**asked, "answers": [Answer("a", None), Answer("b", None)]}) == ["a", "b"]


def test_a_question_without_an_answer_is_written_in_words_and_scored_as_nothing() -> None:
    task = QuestionAnsweringTask(no_answer="none")
    asked = {"context": "c", "question": "q", "answers": []}
    assert task.target(asked) == "none"
    assert task.references(asked) == [""]
    assert task.answer("none") == ""


def test_labels_are_those_of_the_training_data_in_order(tokenizer: Tokenizer) -> None:
    examples = [{"text": "a dog", "label": "b"}, {"text": "the cat", "label": "a"}]
    task = ClassificationTask().learned_from(examples)
    assert task.labels == ("a", "b")
    assert [target for _, target in task.encode(examples, tokenizer, tokenizer)] == [[1], [0]]
    with pytest.raises(DataError, match="label 'c' is not one of the task's: a, b"):
        task.encode([{"text": "a dog", "label": "c"}], tokenizer, tokenizer)


def test_blocks_of_a_text_make_up_the_text_and_the_last_has_its_end(tokenizer: Tokenizer) -> None:
    text = "the cat sat on the mat a dog ran"
    pairs = LanguageModelingTask(block=4).encode([{"text": text}], tokenizer, tokenizer)
    assert all(source == [] and 1 <= len(target) <= 4 for source, target in pairs)
    assert [token for _, target in pairs for token in target] == [*tokenizer.encode(text), tokenizer.number("</s>")]


def test_tasks_of_a_model_come_back_from_its_directory(tmp_path: Path) -> None:
    tasks = (TranslationTask(), SummarizationTask(tag="<s>"))
    write_tasks(tmp_path, tasks)
    assert read_tasks(tmp_path) == tasks


def test_a_directory_without_the_file_is_for_translation(tmp_path: Path) -> None:
    assert read_tasks(tmp_path) == (TranslationTask(),)


class Reversal(Task):
    kind: str = "reversal"


def test_a_run_with_a_task_of_ones_own_is_written_with_its_settings_and_without_a_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    class Repetition(Task):
        kind: str = "repetition"
        times: int = 2

    run = Run.from_toml(RUN).model_copy(update={"task": (Repetition(times=3),)})
    assert run.model_dump(mode="json")["task"] == [{"kind": "repetition", "tag": None, "times": 3}]
    assert not recwarn.list


def test_a_task_of_ones_own_is_refused_by_name_unless_it_is_given(tmp_path: Path) -> None:
    write_tasks(tmp_path, [Reversal()])
    with pytest.raises(ModelError, match="the task 'reversal' is not one of regard's"):
        read_tasks(tmp_path)
    assert read_tasks(tmp_path, own=[Reversal()]) == (Reversal(),)


@pytest.mark.parametrize(
    "content", ["[]", '{"tasks": 3}', '{"tasks": []}', '{"tasks": [{"kind": 3}]}', '{"tasks": [{"kind": "nothing"}]}']
)
def test_a_file_that_names_no_tasks_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / TASKS_FILE).write_text(content)
    with pytest.raises(ModelError, match="task.json"):
        read_tasks(tmp_path)


RUN = 'data.train = [{kind = "dates"}]\nmodel = {preset = "tiny"}\ntraining = {steps = 3}\n'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('task = "summarisation"', "task 'summarisation' is not known; did you mean summarization?"),
        ('task = {kind = "xyz"}', "task 'xyz' is not known; it is one of translation, summarization"),
        ('task = "language-modeling"\nvalidation = {metric = "bleu"}', "for language-modeling it is loss: it has no"),
        ('task = ["translation", "translation"]', "several different ones"),
        ('task = ["translation", "classification"]', "needs a model that is encoder-only"),
        ('task = ["translation", "summarization"]', "a corpus names no task"),
        ('task = "summarization"\nvalidation = {metric = "accuracy"}', "for summarization it is one of loss, rouge1"),
        ('task = "classification"\ntokenizer = {shared = false}', "has one vocabulary"),
    ],
)
def test_tasks_that_do_not_fit_are_refused_in_a_sentence(lines: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Run.from_toml(f"{lines}\n{RUN}")


def test_with_several_tasks_each_has_a_tag_and_translation_those_of_its_languages() -> None:
    run = Run.from_toml(
        'task = ["translation", "summarization"]\n'
        'data.train = [{kind = "tsv", path = "a", tag = "<2de>", task = "translation"},\n'
        '              {kind = "jsonl", path = "b", task = "summarization"}]\n'
        'model = {preset = "tiny"}\ntraining = {steps = 3}\n'
    )
    assert run.tags == ["<2de>", "<summarization>"]
    assert [run.tag_of(corpus) for corpus in run.data.train] == ["<2de>", "<summarization>"]


def test_labels_are_two_at_least_and_not_empty() -> None:
    with pytest.raises(ConfigError, match="labels has 'good' alone"):
        ClassificationTask(labels=("good",))
    with pytest.raises(ConfigError, match="labels has 'good' twice"):
        ClassificationTask(labels=("good", "bad", "good"))
    task = ClassificationTask()
    for labels, says in ((["a", "a"], "are 'a'; two at least"), (["", "a"], "are '', 'a'; two at least")):
        with pytest.raises(DataError, match=says):
            task.learned_from([{"text": "x", "label": label} for label in labels])


@pytest.mark.parametrize(
    "task", ['{ kind = "extractive-question-answering", window = 100 }', '{ kind = "language-modeling", block = 99 }']
)
def test_windows_and_blocks_fit_into_the_positions_of_a_model(task: str) -> None:
    file = (
        f'task = {task}\ndata.train = [{{ kind = "text", path = "x" }}]\ntraining.steps = 1\n[model]\npreset = "tiny"\n'
    )
    with pytest.raises(ConfigError, match=r"reads up to 100 tokens at once; model\.max_positions ends at 64"):
        Run.from_toml(f'{file}positions = "learned"\nmax_positions = 64')
    Run.from_toml(f'{file}positions = "learned"\nmax_positions = 100')
    Run.from_toml(f'{file}positions = "rope"')


def test_an_example_without_a_field_is_refused_by_name() -> None:
    model, tokenizer = small_model()
    pipeline = TextToText(model, tokenizer, tokenizer, precision="float")
    with pytest.raises(InputError, match="an example has no field 'source'; text2text reads source"):
        pipeline.write({"text": "x"})
    with pytest.raises(InputError, match="an example is 'x'; a dict with the fields of text2text was expected"):
        pipeline.write(["x"])  # type: ignore[list-item]


@pytest.mark.parametrize("task", [SummarizationTask(), QuestionAnsweringTask()])
def test_line_breaks_are_spaces_to_tasks_that_read_prose(task: Task, tokenizer: Tokenizer) -> None:
    one = {"document": "a\nb  c", "summary": "d", "context": "a\n b", "question": "c\u00a0d?", "answers": [Answer("b")]}
    other = {"document": "a b c", "summary": "d", "context": "a b", "question": "c d?", "answers": [Answer("b")]}

    assert task.encode([one], tokenizer, tokenizer) == task.encode([other], tokenizer, tokenizer)
    assert "plain" in task.identity
    assert TextToTextTask().spaced("a\nb") == "a\nb"


class FirstWord:
    """Answers with the first word of the context."""

    task: Any = QuestionAnsweringTask()

    def predictions(self, examples: Sequence[Example], **changes: Any) -> list[str]:
        return [example["context"].split()[0] for example in examples]


@pytest.mark.parametrize(
    "answers", ["home", ["home", "house"], [Answer("home")], {"text": ["home"], "answer_start": [0]}]
)
def test_examples_are_evaluated_with_answers_of_any_form(answers: Any) -> None:
    example = {"context": "home sweet home", "question": "where?", "answers": answers}
    assert [one.value for one in evaluate_examples(FirstWord(), [example])] == [100.0, 100.0, 100.0]


@pytest.mark.parametrize(
    ("example", "says"),
    [
        ({"context": "a", "question": "b"}, "example 1 has no field 'answers'"),
        ({"context": "a", "question": "b", "answers": 3}, "example 1: answers is int, not an answer"),
    ],
)
def test_examples_that_cannot_be_evaluated_are_named(example: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        evaluate_examples(FirstWord(), [example])


def test_a_label_that_the_task_does_not_have_is_no_wrong_answer() -> None:
    class Always(FirstWord):
        task = ClassificationTask(labels=("bad", "good"))

    with pytest.raises(DataError, match="example 2: label 'label' is not one of the task's: bad, good"):
        evaluate_examples(Always(), [{"text": "a", "label": "good"}, {"text": "b", "label": "label"}])


_REVERSAL = """
from regard.tasks.task import Task

class Reversal(Task):
    kind: str = "reversal"
    times: int = 1

    def target(self, example):
        return example["source"][::-1]
"""


def test_the_code_of_a_task_of_ones_own_is_a_part_of_its_identity(tmp_path: Path) -> None:
    """What was encoded before its code was edited, or for another task, is not found in the cache."""

    def loaded(code: str) -> Any:
        (tmp_path / "own.py").write_text(code)
        spec = importlib.util.spec_from_file_location("own", tmp_path / "own.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "own", module)
            spec.loader.exec_module(module)
            return [module.Reversal().identity, module.Reversal(times=2).identity]

    first, again, edited = loaded(_REVERSAL), loaded(_REVERSAL), loaded(_REVERSAL.replace("[::-1]", ".upper()"))
    assert first == again
    assert len({*first, *edited, ""}) == 5
