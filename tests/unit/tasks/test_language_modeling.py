"""A language model goes on with texts."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import Transformer
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


def test_perplexity_is_that_of_the_tokens_of_blocks() -> None:
    model = generator()
    texts = [SENTENCES[7], " ".join(SENTENCES * 30), "Tom"]
    tokens, total = 0, 0.0
    for text in texts:
        whole = [*model.target.encode(text), model.target.number("</s>")]
        for first in range(0, len(whole), model.task.block):
            block = torch.tensor([whole[first : first + model.task.block]])
            given = torch.cat([torch.tensor([[model.target.number("<s>")]]), block[:, :-1]], dim=1)
            total -= float(model.model(target=given).log_softmax(-1).gather(2, block[:, :, None]).sum())
            tokens += block.numel()
    assert model.perplexity(texts) == pytest.approx(math.exp(total / tokens), rel=1e-4)
    assert model.perplexity([*texts, "", " "]) == model.perplexity(texts)
    with pytest.raises(InputError, match="the texts are empty"):
        model.perplexity(" ")


def test_perplexity_is_that_of_a_models_own_logits() -> None:
    class Sharper(Transformer):
        def logits(self, *args: Any, **options: Any) -> Tensor:
            return 3 * super().logits(*args, **options)

    model, text = generator(), "Tom sees the house."
    before = model.perplexity(text)
    model.model.__class__ = Sharper
    assert model.perplexity(text) == pytest.approx(math.exp(-model.score("", text).score), rel=1e-4) != before


def test_a_continuation_is_scored_after_its_prompt() -> None:
    model = generator()
    whole, prompt = model.target.encode("Tom sees") + model.target.encode("the house."), model.target.encode("Tom sees")
    (logs,) = model.token_log_probabilities([([], whole)])
    found = model.score("Tom sees", "the house.")
    assert found.tokens == whole[len(prompt) :]
    assert found.log_probability == pytest.approx(sum(logs[len(prompt) :]))
    assert model.score(["Mary likes", ""], ["the house."] * 2)[0] != model.score("", "the house.")
    with pytest.raises(InputError, match="a decoder alone reads no source"):
        model.token_log_probabilities([([5], [6])])
