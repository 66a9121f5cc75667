"""Joey NMT's own search over its own model, with our weights."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary
from safetensors.torch import load_file

from benchmarks.decoding.job import END, PAD, START, Job, Rows, Translate, in_batches, run, up_to_the_end

OURS = [3, PAD, START, END]  # where we have its first four tokens, <unk> <pad> <s> </s>


def joey(directory: Path) -> Any:
    """Build the model and give it our weights."""
    ours: dict[str, Any] = json.loads((directory / "config.json").read_text(encoding="utf-8"))["model"]
    special = SimpleNamespace(
        pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>", sep_token=None,
        unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None, lang_tags=[],
    )  # fmt: skip
    vocabulary = Vocabulary([f"t{number}" for number in range(ours["vocab_size"] - 4)], special)
    side = {
        "type": "transformer",
        "num_heads": ours["num_heads"],
        "embeddings": {"embedding_dim": ours["d_model"], "scale": True, "dropout": 0.0},
        "hidden_size": ours["d_model"],
        "ff_size": ours["d_ff"],
        "dropout": 0.0,
        "layer_norm": ours["norm_placement"],
        "activation": "relu",
    }
    config = {
        "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "bias_initializer": "zeros",
        "tied_embeddings": True, "tied_softmax": True,
        "encoder": {**side, "num_layers": ours["encoder_layers"]},
        "decoder": {**side, "num_layers": ours["decoder_layers"]},
    }  # fmt: skip
    model = build_model(config, src_vocab=vocabulary, trg_vocab=vocabulary)
    state = {_renamed(name): tensor.float() for name, tensor in load_file(directory / "model.safetensors").items()}
    embeddings = state.pop("embeddings")[OURS + list(range(len(OURS), ours["vocab_size"]))]
    for name in ("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"):
        state[name] = embeddings
    for name, tensor in model.state_dict().items():
        if name.endswith("pe.pe"):
            state[name] = tensor
    model.load_state_dict(state)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = ours["norm_eps"]
    return model.eval()


def _renamed(name: str) -> str:
    if name == "source_embedding.tokens.weight":
        return "embeddings"
    itself = "src_src_att" if name.startswith("encoder") else "trg_trg_att"
    norm = "layer_norm" if name.startswith("encoder") else "x_layer_norm"
    names = {
        "self_attention.query": f"{itself}.q_layer",
        "self_attention.key": f"{itself}.k_layer",
        "self_attention.value": f"{itself}.v_layer",
        "self_attention.output": f"{itself}.output_layer",
        "cross_attention.query": "src_trg_att.q_layer",
        "cross_attention.key": "src_trg_att.k_layer",
        "cross_attention.value": "src_trg_att.v_layer",
        "cross_attention.output": "src_trg_att.output_layer",
        "self_attention_residual.norm": norm,
        "cross_attention_residual.norm": "dec_layer_norm",
        "feed_forward_residual.norm": "feed_forward.layer_norm",
        "feed_forward.expand": "feed_forward.pwff_layer.0",
        "feed_forward.contract": "feed_forward.pwff_layer.3",
        "final_norm": "layer_norm",
    }
    for old, new in names.items():
        if f".{old}." in name:
            return name.replace(f".{old}.", f".{new}.")
    raise ValueError(f"{name} has no place in Joey NMT's model")


class _Batch(SimpleNamespace):
    """What its search asks of a batch."""

    has_trg = False


def prepare(job: Job, variant: list[str]) -> Translate:
    """`THREADS BATCH`."""
    torch.set_num_threads(int(variant[0]))
    model = joey(Path(job.model))

    @torch.no_grad()
    def batch(sources: Rows) -> Rows:
        longest = max(map(len, sources))
        pad = OURS.index(PAD)
        rows = [[OURS.index(token) if token < len(OURS) else token for token in row] for row in sources]
        source = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
        given = _Batch(src=source, src_length=(source != pad).sum(1), src_mask=(source != pad)[:, None])
        found, _, _ = search(
            model=model, batch=given, max_output_length=2 * longest + 10, beam_size=job.beam, beam_alpha=1.0, n_best=1
        )
        back = [[OURS[token] if token < len(OURS) else int(token) for token in row if token >= 0] for row in found]
        return [up_to_the_end(row) for row in back]

    return lambda sources: in_batches(sources, int(variant[1]), batch)


if __name__ == "__main__":
    run(prepare)
