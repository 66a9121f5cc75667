"""A language model goes on with texts."""

import pytest
import torch

from regard.errors import InputError
from regard.tasks.language_modeling import TextGenerator
from tests.unit.models import SENTENCES, small_model


def generator(**changes: object) -> TextGenerator:
    model, tokenizer = small_model(torch.float32, encoder_layers=0, **changes)
    return TextGenerator(model, tokenizer, tokenizer, precision="float")


def test_texts_begin_with_their_prompts_and_do_not_depend_on_one_another() -> None:
    model, prompts = generator(), ["Tom", "My old friend sees", SENTENCES[7]]
    together = model.generate(prompts, beam=2, max_length=6)
    assert [one.text for one in together] == [model.generate(text, beam=2, max_length=6).text for text in prompts]
    assert all(one.text.startswith(text) for one, text in zip(together, prompts, strict=True))


def test_lengths_are_those_of_what_is_written() -> None:
    model, prompts = generator(), ["Tom", "My old friend sees", "Mary"]
    for prompt, one in zip(prompts, model.generate(prompts, min_length=5, max_length=5), strict=True):
        assert len(one.tokens) == len(model.target.encode(prompt)) + 5


def test_pieces_of_a_stream_make_up_the_text() -> None:
    model = generator()
    assert "".join(model.stream("Tom sees", max_length=6)) == model.generate("Tom sees", max_length=6).text


def test_a_table_of_positions_has_an_end() -> None:
    model = generator(positions="learned", max_positions=16)
    assert len(model.generate("Tom", beam=1).tokens) <= 15
    with pytest.raises(InputError, match="a limit of 15 tokens leaves no room for a prefix of"):
        model.generate(" ".join(SENTENCES[:3]))
