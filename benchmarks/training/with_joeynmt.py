"""Joey NMT's model and loss, called as its trainer calls them."""

from joeynmt.model import build_model
from joeynmt.vocabulary import Vocabulary
from torch import Tensor

from benchmarks.training.measure import PAD, SMOOTHING, Size, Step, run, updated_by_adam


def make_step(size: Size) -> Step:
    """Build the model from a configuration like those of its examples."""
    from types import SimpleNamespace

    special = SimpleNamespace(
        pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>", sep_token=None,
        unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None, lang_tags=[],
    )  # fmt: skip
    vocabulary = Vocabulary([f"t{number}" for number in range(size.vocab - 4)], special)
    side = {
        "type": "transformer",
        "num_layers": size.layers,
        "num_heads": size.heads,
        "embeddings": {"embedding_dim": size.d_model, "scale": True, "dropout": size.dropout},
        "hidden_size": size.d_model,
        "ff_size": size.d_ff,
        "dropout": size.dropout,
        "layer_norm": "post",
        "activation": "relu",
    }
    config = {
        "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "bias_initializer": "zeros",
        "tied_embeddings": True, "tied_softmax": True, "encoder": dict(side), "decoder": dict(side),
    }  # fmt: skip
    model = build_model(config, src_vocab=vocabulary, trg_vocab=vocabulary)
    model.loss_function = ("crossentropy", SMOOTHING)
    pad = vocabulary.pad_index

    def loss(source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        # Its padding has another number.
        source, target, labels = (tokens.masked_fill(tokens == PAD, pad) for tokens in (source, target, labels))
        summed, _, _, _ = model(
            return_type="loss",
            src=source,
            trg_input=target,
            trg=labels,
            src_mask=(source != pad)[:, None],
            src_length=(source != pad).sum(1),
            trg_mask=(target != pad)[:, None],
        )
        mean: Tensor = summed / (labels != pad).sum()
        return mean

    return updated_by_adam(model, loss)


if __name__ == "__main__":
    run(make_step)
