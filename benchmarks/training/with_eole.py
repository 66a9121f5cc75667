"""eole's model, with the loss that its trainer makes."""

import torch
from eole.config.models import TransformerModelConfig
from eole.config.training import TrainingConfig
from eole.inputters.inputter import dict_to_vocabs
from eole.models.model import EncoderDecoderModel
from torch import Tensor

from benchmarks.training.measure import PAD, SMOOTHING, Size, Step, run, updated_by_adam


def make_step(size: Size) -> Step:
    """Build the model from its own configuration classes."""
    special = {"pad_token": "<blank>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    tokens = ["<blank>", "<s>", "</s>", "<unk>", *(f"t{number}" for number in range(size.vocab - 4))]
    vocabularies = dict_to_vocabs({"src": tokens, "tgt": tokens, "specials": special, "decoder_start_token": "<s>"})
    config = TransformerModelConfig(
        layers=size.layers,
        hidden_size=size.d_model,
        transformer_ff=size.d_ff,
        heads=size.heads,
        mlp_activation_fn="relu",
        add_ffnbias=True,
        add_qkvbias=True,
        add_final_linear_bias=True,
        share_embeddings=True,
        share_decoder_embeddings=True,
        embeddings={"word_vec_size": size.d_model, "position_encoding_type": "SinusoidalInterleaved"},
    )
    training = TrainingConfig(
        dropout=[size.dropout], attention_dropout=[0.0], param_init_method="xavier_uniform", compute_dtype="fp32"
    )
    model = EncoderDecoderModel.build(config, vocabularies, training)
    model.init_weights(training)
    model.src_pad_idx = model.tgt_pad_idx = PAD
    criterion = torch.nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum", label_smoothing=SMOOTHING)

    def loss(source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        # It takes the whole line and cuts the last token off itself.
        line = torch.cat([target, labels[:, -1:]], dim=1)
        output = model(source, line, (source != PAD).sum(1))
        logits = model.generator(output.dec_out.flatten(0, 1))
        mean: Tensor = criterion(logits, labels.flatten()) / (labels != PAD).sum()
        return mean

    return updated_by_adam(model, loss)


if __name__ == "__main__":
    run(make_step)
