"""What an export is checked on when nothing is given."""

from pathlib import Path

import pytest

from regard import InputError, Transformer, TransformerConfig
from regard.data import Tokenizer
from regard.export.check_set import check_set
from regard.tasks.translation import Translator
from tests.unit.models import SENTENCES, small_pipeline


def untagged_pipeline(**changes: object) -> Translator:
    tokenizer = Tokenizer.train(SENTENCES, vocab_size=400)
    fields = dict(vocab_size=tokenizer.vocab_size, d_model=32, num_heads=4, encoder_layers=1, decoder_layers=1)
    model = Transformer(TransformerConfig(**{**fields, "bos_id": 1, "eos_id": 2, **changes}))
    return Translator(model, tokenizer, tokenizer, precision="float")


def test_german_and_english_come_with_the_package() -> None:
    pipeline = small_pipeline()
    both, one = check_set(pipeline), check_set(pipeline, language="de")
    assert both.origin == one.origin == "built-in sentences"
    assert len(both.sources) == 2 * len(one.sources) > 60
    tags = {pipeline.source.token(source[0]) for source in both.sources}
    assert tags == {"<2de>", "<2en>"}
    assert one.references is not None
    assert "Ich habe Hunger." in one.references


def test_the_test_set_of_the_model_comes_first(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("Tom sees it.\tMary.\n" * 3)
    (tmp_path / "test.json").write_text('{"columns": ["en", "de"]}')
    both = check_set(small_pipeline(), directory=tmp_path)
    assert both.origin == "sentences of the model's test set"
    assert both.references == ["Tom sees it."] * 3 + ["Mary."] * 3
    assert check_set(small_pipeline(), directory=tmp_path, language="de").references == ["Mary."] * 3


@pytest.mark.parametrize("changes", [{}, dict(positions="learned", max_positions=8)], ids=str)
def test_a_model_without_languages_is_checked_on_random_tokens(changes: dict[str, object]) -> None:
    pipeline = untagged_pipeline(**changes)
    found = check_set(pipeline)
    assert found.origin == "random token sequences"
    assert found.references is None
    assert all(source[-1] == pipeline.source_end for source in found.sources)
    assert found.targets == [hypotheses[0].tokens for hypotheses in pipeline.decode(found.sources, beam=1)]
    assert found == check_set(pipeline), "the same each time"


def test_sentences_that_a_model_cannot_read_are_left_out() -> None:
    pipeline = untagged_pipeline(positions="learned", max_positions=32)
    found = check_set(pipeline, [("Tom sees it.", "Mary."), ("word " * 100, "Mary.")])
    assert found.references == ["Mary."]
    with pytest.raises(InputError, match="all are longer than the model can read"):
        check_set(pipeline, [("word " * 100, "Mary.")])


def test_a_language_that_the_model_does_not_write_is_refused() -> None:
    with pytest.raises(InputError, match="language 'fr'"):
        check_set(small_pipeline(), language="fr")
