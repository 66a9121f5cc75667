"""A small model with a vocabulary of its own, sure of what it writes although it has learned nothing."""

from itertools import product
from pathlib import Path

import torch

from regard import Transformer, TransformerConfig
from regard.data import Tokenizer
from regard.tasks.translation import Translator

SENTENCES = [
    f"{who} {does} {what}."
    for who, does, what in product(
        ("Tom", "Mary", "The cat", "Nobody", "My old friend"),
        ("sees", "likes", "has found", "does not want", "wrote about"),
        ("the house", "a green door", "three small birds", "it", "Boston in the rain"),
    )
]


def small_model(dtype: torch.dtype = torch.float32, **changes: object) -> tuple[Transformer, Tokenizer]:
    tokenizer = Tokenizer.train(SENTENCES, vocab_size=400, tags=["<2de>", "<2en>"])
    fields = dict(d_model=32, num_heads=4, d_ff=64, encoder_layers=2, decoder_layers=2, dropout=0.0)
    size = tokenizer.vocab_size
    config = TransformerConfig(**{**fields, "vocab_size": size, "bos_id": 1, "eos_id": 2, "pad_id": 0, **changes})
    torch.manual_seed(4)
    model = Transformer(config).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.0 if "embedding" not in name else 1.2)
    return model, tokenizer


def small_pipeline(dtype: torch.dtype = torch.float32, precision: str = "float", **changes: object) -> Translator:
    model, tokenizer = small_model(dtype, **changes)
    return Translator(model, tokenizer, tokenizer, precision=precision)  # type: ignore[arg-type]


def save_small_model(path: Path) -> Path:
    model, tokenizer = small_model()
    model.save(path)
    tokenizer.save(path / "tokenizer.json")
    return path
