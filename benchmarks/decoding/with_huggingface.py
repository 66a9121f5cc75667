"""Hugging Face's `generate`, over the one of its models that has our layout: Pegasus (norms first, sinusoids)."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PegasusConfig, PegasusForConditionalGeneration

from benchmarks.decoding.job import END, PAD, START, Job, Rows, Translate, in_batches, run, up_to_the_end


def pegasus(directory: Path) -> Any:
    """Build the model and give it our weights."""
    ours: dict[str, Any] = json.loads((directory / "config.json").read_text(encoding="utf-8"))["model"]
    layout = (ours["norm_placement"], ours["activation"], ours["positions"])
    assert layout == ("pre", "relu", "sinusoidal"), layout
    model = PegasusForConditionalGeneration(
        PegasusConfig(
            vocab_size=ours["vocab_size"],
            d_model=ours["d_model"],
            encoder_layers=ours["encoder_layers"],
            decoder_layers=ours["decoder_layers"],
            encoder_ffn_dim=ours["d_ff"],
            decoder_ffn_dim=ours["d_ff"],
            encoder_attention_heads=ours["num_heads"],
            decoder_attention_heads=ours["num_heads"],
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=512,
            pad_token_id=PAD,
            bos_token_id=START,
            eos_token_id=END,
            decoder_start_token_id=START,
            forced_eos_token_id=None,
        )
    ).eval()
    state = {_renamed(name): tensor.float() for name, tensor in load_file(directory / "model.safetensors").items()}
    shared = state.pop("shared")
    for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens"):
        state[f"model.{name}.weight"] = shared
    state["lm_head.weight"] = shared
    state["final_logits_bias"] = torch.zeros(1, ours["vocab_size"])
    for side in ("encoder", "decoder"):
        state[f"model.{side}.embed_positions.weight"] = _sinusoids(512, ours["d_model"])
    model.load_state_dict(state)
    return model


def _renamed(name: str) -> str:
    if name == "source_embedding.tokens.weight":
        return "shared"
    names = {
        "self_attention.query": "self_attn.q_proj",
        "self_attention.key": "self_attn.k_proj",
        "self_attention.value": "self_attn.v_proj",
        "self_attention.output": "self_attn.out_proj",
        "cross_attention.query": "encoder_attn.q_proj",
        "cross_attention.key": "encoder_attn.k_proj",
        "cross_attention.value": "encoder_attn.v_proj",
        "cross_attention.output": "encoder_attn.out_proj",
        "self_attention_residual.norm": "self_attn_layer_norm",
        "cross_attention_residual.norm": "encoder_attn_layer_norm",
        "feed_forward_residual.norm": "final_layer_norm",
        "feed_forward.expand": "fc1",
        "feed_forward.contract": "fc2",
        "final_norm": "layer_norm",
    }
    for old, new in names.items():
        if f".{old}." in name:
            return "model." + name.replace(f".{old}.", f".{new}.")
    raise ValueError(f"{name} has no place in Pegasus")


def _sinusoids(length: int, width: int) -> Tensor:
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    table = torch.zeros(length, width)
    table[:, 0::2], table[:, 1::2] = angles.sin().float(), angles.cos().float()
    return table


def prepare(job: Job, variant: list[str]) -> Translate:
    """`THREADS BATCH`."""
    torch.set_num_threads(int(variant[0]))
    model = pegasus(Path(job.model))

    @torch.no_grad()
    def batch(sources: Rows) -> Rows:
        longest = max(map(len, sources))
        source = torch.tensor([row + [PAD] * (longest - len(row)) for row in sources])
        found = model.generate(
            source,
            attention_mask=(source != PAD).long(),
            num_beams=job.beam,
            length_penalty=1.0,
            early_stopping=job.beam > 1,
            do_sample=False,
            max_new_tokens=2 * longest + 10,
        )
        return [up_to_the_end(row[1:]) for row in found.tolist()]

    return lambda sources: in_batches(sources, int(variant[1]), batch)


if __name__ == "__main__":
    run(prepare)
