import pytest
import torch
from hypothesis import given, settings

import regard
from regard import Transformer, TransformerConfig
from regard.errors import InputError
from regard.layers import (
    FeedForward,
    LayerNorm,
    LearnedPositions,
    MultiHeadAttention,
    RMSNorm,
    SinusoidalPositions,
)
from tests.strategies import VOCAB, configs, model_of, tokens


def count(model: Transformer) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("preset", "low", "high"), [("base", 62e6, 66e6), ("big", 210e6, 217e6)])
def test_the_papers_models_have_the_papers_sizes(preset: str, low: float, high: float) -> None:
    with torch.device("meta"):
        model = Transformer(TransformerConfig.preset(preset, vocab_size=37_000))
    assert low <= count(model) <= high


@settings(max_examples=60)
@given(configs())
def test_every_parameter_of_every_configuration_learns(config: TransformerConfig) -> None:
    model = model_of(config).train()
    if config.kind == "encoder-decoder":
        logits = model(tokens(2, 5, config.source_size), tokens(2, 4, VOCAB))
    else:
        logits = model(tokens(2, 5, VOCAB))
    assert logits.shape[-1] == VOCAB
    regard.label_smoothed_cross_entropy(logits, torch.randint(0, VOCAB, logits.shape[:2])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # A key's bias adds the same to all of a query's scores, which the softmax takes away again.
        assert parameter.grad.abs().max() > 0 or name.endswith("key.bias"), name


@settings(max_examples=60)
@given(configs())
def test_every_field_reaches_the_modules(config: TransformerConfig) -> None:
    model = Transformer(config)
    D, H, G = config.d_model, config.num_heads, config.num_kv_heads or config.num_heads
    K, V = config.d_k or D // H, config.d_v or D // H
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            shapes = [p.weight.shape for p in (module.query, module.key, module.value, module.output)]
            assert shapes == [(H * K, D), (G * K, D), (G * V, D), (D, H * V)]
            assert (module.query.bias is not None) == config.bias
            assert module.dropout == config.attention_dropout
        if isinstance(module, FeedForward):
            assert module.expand.weight.shape == (config.d_ff or 4 * D, D)
            assert (module.activation, module.dropout.rate) == (config.activation, config.activation_dropout)
        if isinstance(module, LayerNorm | RMSNorm):
            assert module.eps == config.norm_eps
            assert isinstance(module, LayerNorm) == (config.norm == "layer")
        if isinstance(module, SinusoidalPositions | LearnedPositions):
            assert module.offset == config.position_offset
            assert isinstance(module, LearnedPositions) == (config.positions == "learned")


@pytest.mark.parametrize(("shared", "matrices"), [("all", 1), ("source-target", 2), ("target-output", 2), ("none", 3)])
def test_embeddings_are_shared_as_told(shared: str, matrices: int) -> None:
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=VOCAB, shared_embeddings=shared))
    assert sum(parameter.shape == (VOCAB, 128) for parameter in model.parameters()) == matrices


def test_a_decoder_alone_looks_back_only_and_an_encoder_alone_both_ways() -> None:
    x = tokens(1, 6, VOCAB)
    changed = x.clone()
    changed[0, -1] = x[0, -1] % (VOCAB - 1) + 1
    decoder = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB, encoder_layers=0))
    assert decoder(x)[:, :-1].equal(decoder(changed)[:, :-1])
    encoder = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB, decoder_layers=0))
    assert not encoder(x)[:, :-1].isclose(encoder(changed)[:, :-1]).all()


def test_a_source_mask_takes_the_place_of_padding() -> None:
    model = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB))
    source, target = tokens(2, 5, VOCAB), tokens(2, 3, VOCAB)
    mask = torch.tensor([[True, True, True, False, False]] * 2)[:, None, None]
    masked = model.decode(target, model.encode(source, mask))
    torch.testing.assert_close(masked, model.decode(target, model.encode(source[:, :3])))
    with pytest.raises(InputError, match=r"\(2, 1, 1, 5\).*got \(5, 5\)"):
        model.encode(source, torch.ones(5, 5, dtype=torch.bool))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((torch.tensor([[1, 23]]), torch.tensor([[1]])), "token 23 at row 0, position 1 .* vocabulary of 23"),
        ((torch.tensor([[1, -4]]), torch.tensor([[1]])), "token -4"),
        ((torch.tensor([1, 2]), torch.tensor([[1]])), r"shape \(2,\)"),
        ((torch.tensor([[1.0]]), torch.tensor([[1]])), "torch.float32"),
        ((torch.tensor([[1]]), None), "missing"),
        ((torch.tensor([[True]]), torch.tensor([[1]])), "torch.bool"),
        ((torch.tensor([[1], [2]]), torch.tensor([[1]])), "1 rows and keys 2"),
    ],
)
def test_bad_tokens_are_told(arguments: tuple, says: str) -> None:
    model = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB))
    with pytest.raises(InputError, match=says):
        model(*arguments)


def test_tokens_of_any_integer_type_are_taken() -> None:
    model = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB))
    x = tokens(2, 3, VOCAB)
    expected = model(x, x)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        assert model(x.to(dtype), x.to(dtype)).equal(expected)


def test_a_sequence_beyond_the_learned_table_is_told() -> None:
    config = TransformerConfig.preset("tiny", vocab_size=VOCAB, positions="learned", max_positions=4)
    model = model_of(config)
    memory = model.encode(tokens(1, 4, VOCAB))
    with pytest.raises(InputError, match="5 positions .* table of 4"):
        model.encode(tokens(1, 5, VOCAB))
    cache = model.start_cache(memory)
    model.decode(tokens(1, 3, VOCAB), cache=cache)
    with pytest.raises(InputError, match="5 positions .* table of 4"):
        model.decode(tokens(1, 2, VOCAB), cache=cache)


def test_sinusoids_have_no_end() -> None:
    model = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB))
    short = tokens(1, 10, VOCAB)
    before = model.encode(short).states_BSD
    assert model.encode(tokens(1, 700, VOCAB)).states_BSD.isfinite().all()
    assert model.encode(short).states_BSD.equal(before)


def test_a_stack_that_is_not_there_is_told() -> None:
    decoder = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB, encoder_layers=0))
    encoder = model_of(TransformerConfig.preset("tiny", vocab_size=VOCAB, decoder_layers=0))
    with pytest.raises(InputError, match="nothing to encode with"):
        decoder.encode(tokens(1, 2, VOCAB))
    with pytest.raises(InputError, match="nothing to decode with"):
        encoder.decode(tokens(1, 2, VOCAB))
    with pytest.raises(InputError, match="given two"):
        decoder(tokens(1, 2, VOCAB), tokens(1, 2, VOCAB))


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_gradients_reach_the_first_layer_at_depth(placement: str) -> None:
    """Without the scaling of what goes into the residual stream, layers' gradients differ by 2 (post) to 4 (pre)."""
    depth = 24
    config = TransformerConfig.preset(
        "tiny", vocab_size=VOCAB, encoder_layers=depth, decoder_layers=0, norm_placement=placement, dropout=0.0
    )
    model = Transformer(config)
    x = tokens(4, 12, VOCAB)
    regard.label_smoothed_cross_entropy(model(x), x).backward()
    norms = [
        model.get_parameter(f"encoder.layers.{layer}.feed_forward.expand.weight").grad.norm().item()  # type: ignore[union-attr]
        for layer in range(depth)
    ]
    assert max(norms) / min(norms) < 1.8


@settings(max_examples=40)
@given(configs())
def test_the_description_accounts_for_every_parameter(config: TransformerConfig) -> None:
    model = Transformer(config)
    lines = model.describe().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Parameters"))
    cells = [line.split()[-1].replace(",", "") for line in lines[start : lines.index("", start)]]
    *parts, total = [int(cell) for cell in cells if cell.isdecimal()]
    assert sum(parts) == total == count(model)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("preset", ["tiny", "small", "base", "big"])
def test_the_description_fits_80_columns(preset: str) -> None:
    config = TransformerConfig.preset(
        preset, vocab_size=256_206, source_vocab_size=128_004, shared_embeddings="none", positions="learned"
    )
    with torch.device("meta"):
        lines = Transformer(config).describe().splitlines()
    assert max(map(len, lines)) <= 80


def test_the_description_shows_the_letters_of_the_equations_beside_ours() -> None:
    told = Transformer(TransformerConfig.preset("tiny", vocab_size=VOCAB, d_k=16, d_v=8)).describe()
    for expected in (
        "S     T′",
        "d_model",
        "(B, 4, T, 16)",
        "(B, 4, S, 8)",
        "g_{1:T′}",
        "W_Q",
        "1/√16 = 0.25",
        "W_1, b_1",
    ):
        assert expected in told
