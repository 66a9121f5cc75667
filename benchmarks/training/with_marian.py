"""Hugging Face's Marian, with label smoothing as its trainer computes it."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from benchmarks.training.measure import PAD, SMOOTHING, Size, Step, run, updated_by_adam


def marian(size: Size) -> Any:
    """Build the model of a size."""
    return MarianMTModel(
        MarianConfig(
            vocab_size=size.vocab,
            d_model=size.d_model,
            encoder_layers=size.layers,
            decoder_layers=size.layers,
            encoder_ffn_dim=size.d_ff,
            decoder_ffn_dim=size.d_ff,
            encoder_attention_heads=size.heads,
            decoder_attention_heads=size.heads,
            dropout=size.dropout,
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=PAD,
            eos_token_id=2,
            forced_eos_token_id=2,
            decoder_start_token_id=1,
            max_position_embeddings=128,
        )
    )


def make_step(size: Size) -> Step:
    """Run the training loop."""
    model = marian(size)

    def loss(source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        mask = (source != PAD).long()
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=target, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=SMOOTHING, ignore_index=PAD)

    return updated_by_adam(model, loss)


if __name__ == "__main__":
    run(make_step)
