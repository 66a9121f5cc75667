"""The same weights in `torch.nn.Transformer` give the same decoder states."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import InputError, ModelError
from regard.model.convert import from_torch_transformer


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@settings(max_examples=20)
@given(
    depths=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    heads=st.sampled_from([1, 2, 4]),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)),
    bias=st.booleans(),
    seed=st.integers(0, 10_000),
)
@torch.no_grad()
def test_decoder_states_agree(
    norm_first: bool,
    activation: str,
    dtype: torch.dtype,
    tolerance: float,
    depths: tuple[int, int],
    heads: int,
    shape: tuple[int, int, int],
    bias: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    theirs = torch.nn.Transformer(
        16, heads, *depths, 24, activation=activation, norm_first=norm_first, batch_first=True, bias=bias, dtype=dtype
    ).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    ours = from_torch_transformer(
        theirs.state_dict(),
        num_heads=heads,
        norm_first=norm_first,
        activation=activation,  # type: ignore[arg-type]
        source_embedding=torch.randn(30, 16, dtype=dtype),
        target_embedding=torch.randn(20, 16, dtype=dtype),
    )
    B, S, T = shape
    source, target = torch.randint(1, 30, (B, S)), torch.randint(1, 20, (B, T))
    lengths = torch.randint(1, S + 1, (B,))
    source[torch.arange(S) >= lengths[:, None]] = 0
    assert ours.source_embedding is not None
    assert ours.target_embedding is not None
    expected = theirs(
        ours.source_embedding(source),
        ours.target_embedding(target),
        tgt_mask=torch.nn.Transformer.generate_square_subsequent_mask(T, dtype=dtype),
        src_key_padding_mask=torch.where(source == 0, -torch.inf, 0.0).to(dtype),
        memory_key_padding_mask=torch.where(source == 0, -torch.inf, 0.0).to(dtype),
    )
    actual = ours.decode(target, ours.encode(source))
    assert (actual - expected).abs().max() <= tolerance * expected.abs().max()


def test_what_does_not_fit_is_told() -> None:
    theirs = torch.nn.Transformer(8, 2, 1, 1, 16)
    state, E = theirs.state_dict(), torch.randn(5, 8)
    with pytest.raises(ModelError, match="linear1.weight is missing"):
        from_torch_transformer(
            {name: x for name, x in state.items() if "encoder.layers.0.linear1" not in name},
            num_heads=2,
            source_embedding=E,
        )
    with pytest.raises(ModelError, match=r"generator\.weight"):
        from_torch_transformer({**state, "generator.weight": E}, num_heads=2, source_embedding=E)
    for field, says in (({"bias": False}, "bias"), ({"norm": "rms"}, "bias"), ({"final_norm": False}, "final_norm")):
        with pytest.raises(ModelError, match=says):
            from_torch_transformer(state, num_heads=2, source_embedding=E, **field)
    with pytest.raises(ModelError, match="target_embedding.tokens.weight is to be shared, but differs"):
        from_torch_transformer(state, num_heads=2, source_embedding=E, target_embedding=E + 1, shared_embeddings="all")
    with pytest.raises(ModelError, match="no encoder"):
        from_torch_transformer({}, num_heads=2, source_embedding=E)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"encoder.layers.0.self_attn.in_proj_weight": torch.randn(4, 8)}, r"in_proj_weight has shape \(4, 8\)"),
        ({"encoder.layers.0.self_attn.in_proj_bias": torch.randn(1)}, r"in_proj_bias has shape \(1,\)"),
        ({"encoder.layers.0.linear1.weight": torch.ones(16, 8).long()}, "linear1.weight is torch.int64"),
        ({"encoder.layers.0.linear1.weight": torch.ones(0, 8)}, r"linear1.weight has shape \(0, 8\)"),
        ({"encoder.layers.0.linear1.weight": "weights"}, "linear1.weight is str"),
    ],
)
def test_tensors_that_no_model_has_are_told(change: dict, says: str) -> None:
    state = {**torch.nn.Transformer(8, 2, 1, 1, 16).state_dict(), **change}
    with pytest.raises(ModelError, match=says):
        from_torch_transformer(state, num_heads=2, source_embedding=torch.randn(5, 8))


def test_an_embedding_that_is_no_matrix_is_told() -> None:
    state = torch.nn.Transformer(8, 2, 1, 1, 16).state_dict()
    with pytest.raises(InputError, match=r"the source's matrix has shape \(\)"):
        from_torch_transformer(state, num_heads=2, source_embedding=torch.tensor(1.0))
