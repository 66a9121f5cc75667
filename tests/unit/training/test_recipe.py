from pathlib import Path

import pytest

from regard.data import Babi, Dates, TextFiles
from regard.errors import ConfigError
from regard.training import Run
from tests.unit.training.runs import SMALL


def test_a_run_file_with_changes_and_paths(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        '[data]\ntrain=[{kind="parallel", source="a.en", target="/b.de", tag="<2de>"}, {kind="dates", tag="<iso>"}]\n'
        'cache="c"\n[model]\npreset="tiny"\n[training]\nsteps=5\n'
    )
    run = Run.load(file, ["training.seed = 9", "data.train.0.weight=2", "validation.metric=bleu", "model.d_ff=64"])
    assert run.training.seed == 9
    assert run.validation.metric == "bleu"
    assert run.data.train[0].weight == 2.0
    assert run.data.train[0].files() == [tmp_path / "a.en", Path("/b.de")]
    assert run.data.cache == tmp_path / "c"
    assert run.tags == ["<2de>", "<iso>"]
    assert run.model_config_for(100, 200).d_ff == 64


def test_vocabularies_apart() -> None:
    run = Run.from_toml(SMALL, changes=["tokenizer.shared=false"])
    config = run.model_config_for(100, 200)
    assert (config.source_size, config.vocab_size, config.shared_embeddings) == (100, 200, "target-output")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.stepps=3", "stepps is not a known key; did you mean steps"),
        ("training.steps=true", "steps is True"),
        ("training.steps='3'", "steps is '3'"),
        ("training.label_smoothing=1.0", "label_smoothing is 1.0"),
        ("training.precision=half", "precision is 'half'"),
        ("schedule.peak=-1", "peak is -1"),
        ("schedule.peak=nan", "peak is nan"),
        ("model.dmodel=3", "dmodel is not a known key; did you mean d_model"),
        ("model.preset=giant", "'giant' is not known"),
        ("model.preset=[1]", "not known"),
        ("model.name=x", "name is not a known key"),
        ("model.vocab_size=9", "follows from the tokenizer"),
        ("model.decoder_layers=0", "translation needs encoder-decoder"),
        ("model.encoder_layers=0", "translation needs encoder-decoder"),
        ("data.train=[]", "train is"),
        ('data.train=[{kind="csv"}]', "csv"),
        ("data.train.7.weight=1", "not one of the 1 entries"),
        ("seed", "not of the form"),
        ("training.steps.more=1", "is a value, not a section"),
        ("tokenizer.target=x", "without a source tokenizer"),
        ("optimiser.eps=1", "did you mean optimizer"),
    ],
)
def test_what_is_wrong_is_said(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Run.from_toml(SMALL, changes=[change])


def test_a_run_needs_an_end_and_a_judge() -> None:
    text = '[data]\ntrain=[{kind="dates"}]\n[training]\n'
    with pytest.raises(ConfigError, match="neither steps nor epochs"):
        Run.from_toml(text + "seed=1")
    with pytest.raises(ConfigError, match="nothing to validate on"):
        Run.from_toml(text + "steps=1\n[validation]\npatience=3")
    with pytest.raises(ConfigError, match="nothing to validate on"):
        Run.from_toml(text + "steps=1\n[averaging]\nkind='best'")


def test_a_curriculum_ends_before_the_run() -> None:
    with pytest.raises(ConfigError, match="curriculum is 15, more than the run's 14 steps"):
        Run.from_toml(SMALL, changes=["training.curriculum=15"])
    text = '[data]\ntrain=[{kind="dates"}]\n[training]\nepochs=2\ncurriculum=3\n'
    for steps in ("", "steps=20\n"):
        with pytest.raises(ConfigError, match="training.steps alone says when the run ends"):
            Run.from_toml(text + steps)


def test_two_passes_begin_only_where_there_are_some() -> None:
    with pytest.raises(ConfigError, match="r_drop_from is set, but training.r_drop is 0"):
        Run.from_toml(SMALL, changes=["training.r_drop_from=10"])
    with pytest.raises(ConfigError, match="r_drop_from is 15, after the last of the run's 14 steps"):
        Run.from_toml(SMALL, changes=["training.r_drop=1.0", "training.r_drop_from=15"])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml is missing"):
        Run.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"bad\.toml, line 1 is not UTF-8"):
        Run.load(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_text("[data")
    with pytest.raises(ConfigError, match=r"bad\.toml: not TOML"):
        Run.load(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("schedule.peak=true", "peak is True"),
        ("schedule.peak='0.01'", "peak is '0.01'"),
        ("optimizer.eps=true", "eps is True"),
        ("data.train.0.weight=true", "weight is True"),
        ("data.train.0.weight=1e9", "weight is 1000000000.0"),
        ("training.r_drop=1e300", "r_drop is 1e\\+300"),
        ("training.threads=2147483647", "threads is 2147483647"),
        ("tokenizer.vocab_size=2147483647", "vocab_size is 2147483647"),
        ("validation.length_penalty=1000", "length_penalty is 1000"),
        ("training.seed=" + 5000 * "9", r"\(5,002 characters\)"),
        ("data.train.²=1", "is not one of the 1 entries"),
    ],
)
def test_numbers_that_no_run_has(change: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Run.from_toml(SMALL, changes=[change])
    assert len(str(caught.value)) < 2000


def test_all_paths_of_a_corpus_are_relative_to_the_run_file(tmp_path: Path) -> None:
    text = """data.train = [{ kind = "text", path = ["a.txt", "b/*.txt"] }, { kind = "babi", path = "*_train.txt" }]"""
    corpora = Run.from_toml(text, base=tmp_path).data.train
    paths = [corpus.path for corpus in corpora if isinstance(corpus, TextFiles | Babi)]
    assert paths == [(tmp_path / "a.txt", tmp_path / "b/*.txt"), tmp_path / "*_train.txt"]


def test_a_recipe_is_found_by_its_name_unless_a_file_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Run.load("dates", ["training.seed=7"]).training.seed == 7
    Path("dates").write_text('data.train = [{ kind = "dates", count = 3 }]\n')
    assert [corpus.count for corpus in Run.load("dates").data.train if isinstance(corpus, Dates)] == [3]
    with pytest.raises(ConfigError, match="nothing is neither a file nor one of the recipes: dates"):
        Run.load("nothing")
    with pytest.raises(ConfigError, match="not by a dict"):
        Run.load({"data": {}})  # type: ignore[arg-type]


def test_a_task_without_a_corpus_is_refused() -> None:
    text = """
    task = ["translation", "summarization"]
    data.train = [{ task = "translation", kind = "tsv", path = "a.tsv" }]
    """
    with pytest.raises(ConfigError, match="the task 'summarization' has no corpus in data.train to learn from"):
        Run.from_toml(text)


def test_a_path_of_several_is_named_by_its_place() -> None:
    with pytest.raises(ConfigError) as found:
        Run.from_toml(
            'data.train = [{ kind = "text", path = ["a.txt", 3] }]\nmodel.preset = "tiny"\ntraining.steps = 1'
        )
    assert "data.train.0.path.1 is 3" in str(found.value)
    assert "[" not in str(found.value).partition(" is ")[0]
