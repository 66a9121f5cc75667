"""Copying from the source: probabilities by the formula, cached decoding, beams, batches, training, saving."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._pytree import tree_map

import regard
from regard.acceleration.known import unknown_module
from regard.errors import ConfigError, InputError
from regard.inference.decode import decode
from regard.layers import Pointer, PointerOutput
from regard.training import Run


def model_of(**changes: object) -> regard.Transformer:
    fields = {"vocab_size": 40, "d_model": 32, "d_ff": 64, "bos_id": 1, "eos_id": 2, "copying": True, **changes}
    return regard.Transformer(regard.TransformerConfig.preset("tiny", **fields)).double().eval()


def tokens(*shape: int) -> Tensor:
    return torch.randint(3, 40, shape)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**31))
def test_probabilities_are_those_of_the_formula(T: int, S: int, seed: int) -> None:
    torch.manual_seed(seed)
    pointer, output = Pointer(8, d_k=4).double(), PointerOutput(40, 8, bias=True).double()
    states, memory, source = (torch.randn(T, 8).double(), torch.randn(S, 8).double(), torch.randint(0, 40, (S,)))
    real = torch.rand(S) < 0.8
    kept = pointer.source(memory[None], real[None, None, None], source[None])
    found = output(pointer(states[None], kept))[0].exp()
    for t in range(T):
        scores = [(pointer.query(states[t]) @ pointer.key(memory[i])).item() / 2.0 for i in range(S)]
        exponentials = [torch.tensor(score).double().exp() if real[i] else 0.0 for i, score in enumerate(scores)]
        total = sum(exponentials)
        p_gen = torch.sigmoid(output.generate(states[t]))[0]
        assert output.bias is not None
        expected = p_gen * (output.weight @ states[t] + output.bias).softmax(-1)
        for i in range(S):
            if total > 0.0:
                expected[source[i]] += (1.0 - p_gen) * exponentials[i] / total
        torch.testing.assert_close(found[t], expected)


def test_cached_decoding_is_the_whole_forward_pass() -> None:
    model, source, target = model_of(), tokens(3, 7), tokens(3, 6)
    source[1, 4:] = source[2, 1:] = 0
    expected = model(source, target)
    cache = model.start_cache(model.encode(source))
    steps = [model.logits(model.decode(target[:, t : t + 1], cache=cache)) for t in range(6)]
    torch.testing.assert_close(torch.cat(steps, 1), expected)
    torch.testing.assert_close(expected.exp().sum(-1), torch.ones(3, 6).double())


@pytest.mark.parametrize("beam", [1, 4])
def test_a_sentence_does_not_depend_on_its_batch(beam: int) -> None:
    model = model_of()
    sources = [[*tokens(length).tolist(), 2] for length in (3, 9, 1, 5) for _ in range(3)]
    for source, found in zip(sources, decode(model, sources, beam=beam), strict=True):
        (alone,) = decode(model, [source], beam=beam)
        assert alone.tokens == found.tokens
        assert alone.score == pytest.approx(found.score, abs=1e-9)


def test_gradients_are_those_of_finite_differences() -> None:
    torch.manual_seed(0)
    model, source, target = model_of(encoder_layers=1, decoder_layers=1), tokens(1, 4), tokens(1, 3)
    assert model.pointer is not None
    parameters = [model.pointer.query.weight, model.pointer.key.bias, model.output.generate.weight]

    def loss(*_: Tensor) -> Tensor:
        states = model.decode(target, model.encode(source))
        total: Tensor = model.output.loss(states, target, smoothing=0.1)
        return total

    torch.autograd.gradcheck(loss, parameters)


def test_it_learns_to_copy_tokens_that_it_was_never_trained_on() -> None:
    torch.manual_seed(0)
    model = model_of(encoder_layers=1, decoder_layers=1, dropout=0.0, d_model=64).float().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(300):
        source = torch.randint(3, 20, (32, 6))
        given = torch.cat([torch.ones(32, 1, dtype=torch.long), source[:, :-1]], 1)
        loss = model.output.loss(model.decode(given, model.encode(source)), source) / source.numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    unseen = torch.randint(20, 40, (64, 1))
    logits = model(unseen, torch.ones(64, 1, dtype=torch.long))
    assert (logits[:, 0].argmax(-1) == unseen[:, 0]).float().mean() > 0.9


def test_it_is_saved_and_loaded_and_no_backend_takes_it_for_another(tmp_path: Path) -> None:
    model, source, target = model_of(), tokens(2, 5), tokens(2, 4)
    model.save(tmp_path)
    again = regard.Transformer.load(tmp_path)
    assert torch.equal(again(source, target), model(source, target))
    assert "Pointer" in (unknown_module(model) or "")


def test_what_does_not_go_together_is_refused() -> None:
    for changes, says in (
        ({"encoder_layers": 0}, "copying is from a source"),
        ({"source_vocab_size": 40, "shared_embeddings": "target-output"}, "copying needs one vocabulary"),
        ({"sharing": {"embedding_width": 8}}, "factorized embeddings"),
    ):
        with pytest.raises(ConfigError, match=says):
            model_of(**changes)
    model = model_of()
    plain = model_of(copying=False)
    with pytest.raises(InputError, match="its own `encode`"):
        model.decode(tokens(1, 2), plain.encode(tokens(1, 3)))
    with pytest.raises(InputError, match="states are 31 wide"):
        model.output(torch.randn(1, 2, 31).double())
    with pytest.raises(InputError, match="its own `start_cache`"):
        model.decode(tokens(1, 1), cache=model._decoder_parts()[0].start_cache(*plain.encode(tokens(1, 3))[:2]))
    run = """
        data.train = [{ kind = "dates" }]
        model = { preset = "tiny", copying = true }
    """
    with pytest.raises(ConfigError, match="exact gradients only"):
        Run.from_toml(run, changes=["training.steps=2", 'training.softmax_gradient="sampled"'])
    with pytest.raises(ConfigError, match="copying needs one vocabulary"):
        Run.from_toml(run, changes=["training.steps=2", "tokenizer.shared=false"])


@pytest.mark.parametrize(("B", "S", "T"), [(0, 5, 4), (2, 5, 0), (2, 0, 3)])
def test_nothing_is_decoded_from_nothing(B: int, S: int, T: int) -> None:
    model = model_of()
    assert model(tokens(B, S), tokens(B, T)).shape == (B, T, 40)


def test_a_memory_is_rebuilt_with_its_tokens() -> None:
    model, source, target = model_of(), tokens(2, 5), tokens(2, 4)
    memory = tree_map(lambda x: x, model.encode(source))
    torch.testing.assert_close(model.logits(model.decode(target, memory)), model(source, target))


@pytest.mark.parametrize("bias", [0.0, 12.0, 17.0, 40.0])
def test_a_gate_that_is_open_leaves_what_is_copied_its_probability_and_its_gradient(bias: float) -> None:
    torch.manual_seed(1)
    output = PointerOutput(40, 8, bias=True)
    with torch.no_grad():
        output.generate.weight.zero_()
        output.generate.bias.fill_(bias)
        assert output.bias is not None
        output.bias[7] = -1e4  # it can be copied only
    copied = torch.tensor([0.5, 0.5, 7.0, 9.0])  # weights and tokens
    loss = -output(torch.cat([torch.randn(8), copied]))[7]
    loss.backward()
    expected = -torch.log(0.5 * torch.sigmoid(torch.tensor(-bias, dtype=torch.float64)))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert output.generate.bias.grad is not None
    assert output.generate.bias.grad.item() == pytest.approx(torch.sigmoid(torch.tensor(bias)).item(), rel=1e-5)
