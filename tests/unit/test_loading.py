"""What a model directory may make its user do, and what it may not."""

import os
from pathlib import Path

import pytest

from regard import ModelError, load
from regard.data import Tokenizer
from regard.layers import FeedForward
from tests.unit.models import save_small_model, small_pipeline


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"beam": 5000}', "generation.json: beam is 5000; a model may set 100 at most"),
        ('{"n_best": 101, "sample": true}', "n_best is 101; a model may set 100 at most"),
        ('{"min_length": 1000000000}', "min_length is 1000000000; a model may set 50 at most"),
        ('{"max_length": 1000000000}', "max_length is 1000000000; a model may set 300 at most"),
        ('{"diversity": 1e308}', r"diversity is 1e\+308"),
        ('{"a\\nb": 1}', r"'a\\nb' is not a known key"),
        ("[" * 100_000, "generation.json is not JSON"),
    ],
)
def test_a_model_may_not_have_its_user_search_without_end(tmp_path: Path, content: str, says: str) -> None:
    path = save_small_model(tmp_path / "model")
    (path / "generation.json").write_text(content)
    with pytest.raises(ModelError, match=says) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_settings_that_are_a_sparse_file_are_refused(tmp_path: Path) -> None:
    path = save_small_model(tmp_path / "model")
    (path / "generation.json").touch()
    os.truncate(path / "generation.json", 2**31)
    with pytest.raises(ModelError, match="generation.json is larger than 1 MB; such a file is not read"):
        load(path)


def test_a_tokenizer_of_another_model_is_told_with_the_directory(tmp_path: Path) -> None:
    path = save_small_model(tmp_path / "model")
    Tokenizer.train(["a b"], vocab_size=20, kind="words").save(path / "tokenizer.json")
    with pytest.raises(ModelError, match=r"model: the model knows 400 and 400 tokens, its tokenizers 6 and 6"):
        load(path)


def test_a_temperature_of_almost_nothing_draws_the_likeliest() -> None:
    pipeline = small_pipeline()
    cold = pipeline.translate("The cat sees it.", to="de", sample=True, temperature=1e-320)
    assert cold.text == pipeline.translate("The cat sees it.", to="de", sample=True, temperature=1e-5).text


def test_a_forward_pass_that_is_replaced_after_loading_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load("de-en")  # whose `model` nobody has asked for
    before = model.translate("Ich habe Hunger.", to="en").text
    plain = FeedForward.forward
    monkeypatch.setattr(FeedForward, "forward", lambda self, states: -plain(self, states))
    assert model.translate("Ich habe Hunger.", to="en").text != before
    monkeypatch.undo()
    assert model.translate("Ich habe Hunger.", to="en").text == before
