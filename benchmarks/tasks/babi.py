"""bAbI, all 20 tasks in one model: `python -m benchmarks.tasks.babi --data DIR --out DIR --minutes 40`.

1,000 questions of each task to learn from, word by word, and 1,000 to answer. bAbI has no validation part: steps and
settings are fixed beforehand. `--only relative` trains the runs with that in their names.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.pages import table, write_page
from benchmarks.tasks.runs import Budget, corpus_in, described, parser_of, trained
from benchmarks.variations.loop import once
from regard.data.babi import Babi
from regard.data.corpora import Example

VARIANTS: dict[str, list[str]] = {
    "plain": ['model.positions="sinusoidal"', 'model.sharing="none"', "model.encoder_layers=3"],
    "relative": ['model.sharing="none"', "model.encoder_layers=3"],
    "relative-shared": [],
}
"""Sinusoidal positions, rotary ones, and rotary ones with one encoder layer that is applied four times."""
PASSED = 95.0
FIELDS = ("context", "question", "answers", "task", "task_name")
_CHUNK = 500


def questions_of(directory: Path) -> list[Example]:
    """Return the test questions of all tasks, in order."""
    return list(Babi(path=directory / "*_test.txt").examples(FIELDS))


def accuracies(questions: Sequence[Example], answers: Sequence[str]) -> dict[str, float]:
    """Return the share of right answers of each task, in percent, by its number and name."""
    right: dict[str, list[bool]] = defaultdict(list)
    for question, answer in zip(questions, answers, strict=True):
        acceptable = [one.text for one in question["answers"]]
        right[f"{question['task']} {question['task_name']}"].append(answer in acceptable)
    return {task: 100.0 * sum(some) / len(some) for task, some in right.items()}


def answers_of(model: Path, questions: Sequence[Example]) -> list[str]:
    """Return what a model answers, greedily."""
    answerer = regard.load(model, task="question-answering")
    answers: list[str] = []
    for first in range(0, len(questions), _CHUNK):
        answers += answerer.predictions(questions[first : first + _CHUNK], beam=1)
    return answers


def result_of(model: Path, questions: Sequence[Example]) -> dict[str, Any]:
    """Return the accuracies of a model, and what it is."""
    return {**described(model), "accuracies": accuracies(questions, answers_of(model, questions))}


def mean(accuracies: dict[str, float]) -> float:
    """Return the mean over tasks."""
    return sum(accuracies.values()) / len(accuracies)


def page(results: dict[str, dict[str, Any]]) -> list[str]:
    """Return the table: a column for each run."""
    tasks = list(next(iter(results.values()))["accuracies"])
    found = [result["accuracies"] for result in results.values()]
    rows = [[task, *(f"{some[task]:.1f}" for some in found)] for task in tasks]
    rows += [
        ["**mean accuracy**", *(f"**{mean(some):.1f}**" for some in found)],
        [f"tasks at {PASSED:.0f} %", *(str(sum(value >= PASSED for value in some.values())) for some in found)],
        ["parameters", *(f"{result['parameters'] / 1e6:.2f} M" for result in results.values())],
        ["passes", *(f"{result['epochs']:.0f}" for result in results.values())],
        ["minutes", *(f"{result['minutes']:.0f}" for result in results.values())],
    ]
    return [
        "Accuracy in percent on 1,000 test questions of each task; one model for all of them, trained on 1,000",
        "questions of each, and on 24 copies of each in which words of lists that a task has for it (names, places,",
        "things) have changed places. Statements that answer a question are not marked. The source is the words of the",
        "story and of the question; the answer is written greedily and must be the reference to the letter. All models",
        "may copy words of the story, and begin with short stories (a curriculum). Numbers in names are seeds.",
        "",
        *table(["task", *results], rows),
        "",
        "Published, as remembered: 26.8 % mean error (73.2 % accuracy) for a Transformer trained jointly on as many",
        "questions, with each statement as one vector and without copies (Dehghani et al. 2019).",
    ]


def main() -> None:
    """Train and score what is not there yet, and write the page of all that is."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="", help="part of the names of the runs to train, such as relative-1")
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    out = arguments.out
    questions = questions_of(corpus_in(out, "babi", arguments.data))
    results = {}
    for seed in range(1, arguments.seeds + 1):
        for variant, changes in VARIANTS.items():
            name = f"{variant}-{seed}"
            path = out / f"babi-{name}.json"
            if not path.exists() and arguments.only not in name:
                continue
            if not path.exists():
                trained("babi", out, f"babi-{name}", Budget.of(arguments), [*changes, f"training.seed={seed}"])
            results[name] = once(path, lambda m=out / "models" / f"babi-{name}": result_of(m, questions))
            print(name, mean(results[name]["accuracies"]), flush=True)
    command = "python -m benchmarks.tasks.babi --data DIR --out DIR"
    write_page(arguments.results, "babi", "bAbI, 20 tasks in one model", command, page(results))


if __name__ == "__main__":
    main()
