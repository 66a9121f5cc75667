from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import InputError, ModelError, Transformer, TransformerConfig, load
from regard.decoding import Request, SearchSettings
from regard.inference.backends import choose_backend
from regard.inference.cache_check import decodes_alike
from regard.inference.decode import decode_requests
from regard.layers import FeedForward
from tests.unit.models import small_model


class ShiftedFeedForward(FeedForward):
    """A feed-forward network that also reads the position before."""

    def forward(self, x: Tensor) -> Tensor:
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
        return super().forward(x + before)


class RandomFeedForward(FeedForward):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand_like(x)


def model_with(change: type[FeedForward] | None, **fields: Any) -> Transformer:
    torch.manual_seed(1)
    config = {"vocab_size": 40, "bos_id": 1, "eos_id": 2, "dropout": 0.0, **fields}
    model = Transformer(TransformerConfig.preset("tiny", **config)).eval()
    if change is not None:
        assert model.decoder is not None
        model.decoder.layers[0].feed_forward.__class__ = change
    return model


@pytest.mark.parametrize("fields", [{}, {"encoder_layers": 0}, {"positions": "learned", "max_positions": 5}])
def test_a_model_that_needs_other_positions_is_decoded_without_a_cache(fields: dict[str, Any]) -> None:
    assert decodes_alike(model_with(FeedForward, **fields))
    model = model_with(ShiftedFeedForward, **fields)
    assert not decodes_alike(model)
    assert choose_backend(model).name.startswith("generic decoder without a cache (decoder.layers.0.feed_forward is a")


def test_without_a_cache_a_search_finds_what_the_forward_pass_scores() -> None:
    model = model_with(ShiftedFeedForward)
    sources = [[5, 6, 7, 2], [8, 9, 2]]
    found = decode_requests(
        choose_backend(model), sources, [Request(limit=6, prefix=(4,)), Request(limit=6)], SearchSettings(beam=3)
    )
    for source, (best, *_) in zip(sources, found, strict=True):
        tokens = [*best.tokens, 2]
        logs = model(torch.tensor([source]), torch.tensor([[1, *tokens[:-1]]])).log_softmax(-1)[0]
        expected = logs[torch.arange(len(tokens)), tokens].sum()
        assert best.log_probability == pytest.approx(float(expected.detach()), abs=1e-3)


def test_without_a_cache_there_are_no_attention_weights() -> None:
    backend = choose_backend(model_with(ShiftedFeedForward))
    reason = r"decoded without a cache returns no attention weights \(decoder.layers.0.feed_forward is a .*Shifted"
    with pytest.raises(InputError, match=reason):
        decode_requests(backend, [[5, 2]], [Request(limit=3)], SearchSettings(beam=3, coverage_penalty=0.2))


def test_a_model_whose_outputs_are_random_is_not_compared() -> None:
    assert decodes_alike(model_with(RandomFeedForward))


class TorchAttention(nn.Module):
    """Attention of torch, which has no cache."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(128, 4, batch_first=True)

    def forward(self, query: Tensor, key: Tensor | None = None, *_: Any, causal: bool = False, **__: Any) -> Tensor:
        T = query.size(1)
        mask = torch.ones(T, T, dtype=torch.bool).triu(1) if causal else None
        output: Tensor = self.attention(
            query, *(query if key is None else key,) * 2, attn_mask=mask, need_weights=False
        )[0]
        return output


@pytest.mark.parametrize("name", ["self_attention", "cross_attention"])
def test_attention_without_a_cache_is_decoded_without_one(name: str) -> None:
    model = model_with(None)
    assert model.decoder is not None
    setattr(model.decoder.layers[0], name, TorchAttention().eval())
    backend = choose_backend(model)
    assert backend.name.startswith("generic decoder without a cache (decoder.layers.0")
    [[best, *_]] = decode_requests(backend, [[5, 6, 7, 2]], [Request(limit=6)], SearchSettings(beam=3))
    tokens = [*best.tokens, 2]
    logs = model(torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, *tokens[:-1]]])).log_softmax(-1)[0]
    assert best.log_probability == pytest.approx(
        float(logs[torch.arange(len(tokens)), tokens].sum().detach()), abs=1e-3
    )


@pytest.mark.parametrize("fields", [{}, {"encoder_layers": 0}])
def test_a_model_that_bans_tokens_is_decoded_with_a_cache(fields: dict[str, Any]) -> None:
    model = model_with(None, **fields)

    def ban(module: nn.Module, inputs: tuple[Any, ...], logits: Tensor) -> Tensor:
        return logits.masked_fill(torch.arange(logits.size(-1)) % 3 == 0, -torch.inf)

    model.output.register_forward_hook(ban)
    assert decodes_alike(model)
    assert choose_backend(model).name == "generic decoder (output has hooks)"


def test_a_model_that_bans_other_tokens_step_by_step_is_decoded_without_a_cache() -> None:
    model = model_with(None)

    def ban(module: nn.Module, inputs: tuple[Any, ...], logits: Tensor) -> Tensor:
        return logits.masked_fill(torch.arange(logits.size(-1)) % 3 == logits.size(1) % 3, -torch.inf)

    model.output.register_forward_hook(ban)
    assert not decodes_alike(model)


class Wrapped(nn.Module):
    """A layer around another one, which makes no cache."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.layer(*args, **options)


class TokensOnly(Wrapped):
    """An embedding that takes whole sequences, from the first position."""

    def forward(self, tokens: Tensor) -> Any:
        return self.layer(tokens)


class Stack(nn.Module):
    """A decoder of its own kind, whose layers have another name."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.blocks = decoder.layers

    def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor | None, **_: Any) -> Tensor:
        for block in self.blocks:
            x = block(x, memory, mask)
        return x


class Broken(nn.Module):
    """A feed-forward network that takes the wrong arguments."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


def replace_part(model: Transformer, part: str) -> Transformer:
    assert model.decoder is not None
    assert model.target_embedding is not None
    if part == "layer":
        model.decoder.layers[0] = Wrapped(model.decoder.layers[0])
    elif part == "embedding":
        model.target_embedding = TokensOnly(model.target_embedding)  # type: ignore[assignment]
    elif part == "decoder":
        model.decoder = Stack(model.decoder)  # type: ignore[assignment]
    elif part == "feed-forward":
        model.decoder.layers[0].feed_forward = Broken()
    return model.eval()


@pytest.mark.parametrize("part", ["layer", "embedding", "decoder"])
def test_replaced_layers_that_take_no_cache_are_decoded_without_one(part: str) -> None:
    plain, model = model_with(None), replace_part(model_with(None), part)
    backend = choose_backend(model)
    assert backend.name.startswith("generic decoder without a cache (")
    found = [
        decode_requests(choose, [[5, 6, 7, 2]], [Request(limit=6)], SearchSettings(beam=3))[0][0]
        for choose in (backend, choose_backend(plain))
    ]
    assert found[0].tokens == found[1].tokens
    assert found[0].score == pytest.approx(found[1].score, abs=1e-4)


@pytest.mark.parametrize("part", ["layer", "embedding", "decoder"])
def test_a_saved_model_with_replaced_layers_is_loaded_and_decoded(tmp_path: Path, part: str) -> None:
    model, tokenizer = small_model()
    replace_part(model, part).save(tmp_path / "model")
    tokenizer.save(tmp_path / "model" / "tokenizer.json")
    pipeline = load(tmp_path / "model", build=lambda config: replace_part(Transformer(config), part))
    assert pipeline.backend.startswith("generic decoder without a cache (")
    assert isinstance(pipeline.translate("The cat sees it.", to="de", max_length=5).text, str)


def test_a_model_that_cannot_be_run_is_one_clear_error() -> None:
    with pytest.raises(ModelError, match="the model's forward pass fails: TypeError: .*missing 1 required"):
        choose_backend(replace_part(model_with(None), "feed-forward"))
