"""What is wrong with a configuration is said by its keys, as people write them."""

import re

import pytest

from regard import ConfigError, TransformerConfig
from regard.decoding import SearchSettings
from regard.training import Run

_RUN = '[data]\ntrain = [{kind = "dates"}]\n[training]\nsteps = 1\n'


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("training.sede=1", "training.sede is not a known key; did you mean seed?"),
        ("training.steps=-1", "training.steps is -1; input should be greater than or equal to 1"),
        ("data.train.0.cuont=3", "data.train.0.cuont is not a known key; did you mean count?"),
        ("optimizer.betas=[0.9, 2.0]", "optimizer.betas.1 is 2.0; input should be less than 1"),
        ("tokenizer.target=t.json", "tokenizer: a target tokenizer is given without a source tokenizer"),
        ("model.dmodel=3", "model: dmodel is not a known key; did you mean d_model?"),
        ("averaging.kind=best", "averaging.kind is 'best', but data.valid names nothing to validate on"),
        ("data=3", "data is 3; keys with values were expected"),
    ],
)
def test_a_key_is_named_with_its_sections_and_no_class(change: str, says: str) -> None:
    with pytest.raises(ConfigError) as found:
        Run.from_toml(_RUN, changes=[change])
    assert str(found.value) == says


def test_several_problems_are_all_named() -> None:
    with pytest.raises(ConfigError) as found:
        Run.from_toml(_RUN, changes=["training.steps=0", "validation.beam=0"])
    assert str(found.value).startswith("training.steps is 0; ")
    assert "; validation.beam is 0; " in str(found.value)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("num_beams", "beam"),
        ("num_return_sequences", "n_best"),
        ("do_sample", "sample"),
        ("no_repeat_ngram_size", "no_repeat"),
        ("early_stopping", "early_stop"),
        ("max_new_tokens", "max_length"),
    ],
)
def test_the_name_that_another_library_has_for_a_setting_leads_to_ours(theirs: str, ours: str) -> None:
    with pytest.raises(ConfigError) as found:
        SearchSettings.model_validate({theirs: 2})
    assert str(found.value) == f"{theirs} is not a known key; did you mean {ours}?"


def test_fields_that_do_not_fit_together_are_said_without_the_class() -> None:
    with pytest.raises(ConfigError, match="^n_best is 9, more than the beam of 2 can give$"):
        SearchSettings(n_best=9, beam=2)
    with pytest.raises(ConfigError, match="^min_length is 9, more than the max_length of 8$"):
        SearchSettings(min_length=9, max_length=8)
    with pytest.raises(ConfigError, match="^d_model 7 is not divisible"):
        TransformerConfig(vocab_size=9, d_model=7, num_heads=2)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ("data.train = 3", "data.train is 3; a list was expected"),
        ("data.train = []", "data.train is empty"),
        ('data.train = [{ path = "a" }]', "data.train.0 has no kind"),
        ('data.train = [{ kind = "csv", path = "a" }]', "data.train.0.kind is 'csv'; it is one of "),
    ],
)
def test_lists_and_kinds_are_named_in_plain_words(changes: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        Run.from_toml(changes)
