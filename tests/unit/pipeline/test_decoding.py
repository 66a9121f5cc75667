import pytest
import torch

from regard import Transformer, TransformerConfig
from regard.errors import InputError
from regard.pipeline import decode


def model_of(**changes: int) -> Transformer:
    config = TransformerConfig.preset(
        "tiny", vocab_size=20, d_model=16, d_ff=16, **{"bos_id": 1, "eos_id": 2, **changes}
    )
    return Transformer(config)


@pytest.mark.parametrize("beam", [1, 4])
def test_batches_make_no_difference_and_scores_are_the_models(beam: int) -> None:
    model = model_of().double().train()
    sources = [[*torch.randint(3, 20, (length,)).tolist(), 2] for length in (1, 7, 3, 5)]
    together = decode(model, sources, beam=beam)
    assert model.training
    model.eval()
    for source, found in zip(sources, together, strict=True):
        assert decode(model, [source], beam=beam)[0].tokens == found.tokens
        labels = torch.tensor([[*found.tokens, 2]])
        logs = model(torch.tensor([source]), torch.tensor([[1, *found.tokens]])).log_softmax(-1)
        total = logs.gather(2, labels[:, :, None]).sum().item()
        assert found.score == pytest.approx(total / labels.size(1), abs=1e-5)


def test_a_model_must_know_where_to_start() -> None:
    model = Transformer(TransformerConfig.preset("tiny", vocab_size=20))
    with pytest.raises(InputError, match="no bos_id and eos_id"):
        decode(model, [[3, 2]])


def test_a_model_of_any_floating_point_type_is_decoded() -> None:
    torch.manual_seed(0)
    model = model_of().eval()
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        (found,) = decode(model.to(dtype), [[5, 6, 2]], beam=2)
        assert all(0 <= token < 20 for token in found.tokens)
        assert found.score < 0.0
