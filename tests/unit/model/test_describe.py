"""The tables say how attention is computed as the configuration has it."""

from typing import Any

import pytest
import torch

from regard import Transformer, TransformerConfig


def description(**fields: Any) -> str:
    with torch.device("meta"):
        return Transformer(TransformerConfig.preset("tiny", vocab_size=99, **fields)).describe()


def attended(**fields: Any) -> list[str]:
    """Return the rows of the last table, with single spaces."""
    table = description(**fields).partition("Which tokens attend to which\n")[2]
    return [" ".join(line.split()) for line in table.splitlines()[2:]]


def test_the_paper_s_attention() -> None:
    assert "1/√32 = 0.1768" in description()
    assert attended() == [
        "encoder self: source to source padding of the source; else bidirectional",
        "decoder self: target to target causal",
        "decoder cross: target to source padding of the source",
    ]


def test_a_scale_of_its_own() -> None:
    told = description(attention={"scale": 1.0})
    assert "QKᵀ·scale" in told
    assert "scaled by 1 " in told
    assert "√" not in told


@pytest.mark.parametrize(
    ("pattern", "encoder", "decoder"),
    [
        (
            {"kind": "window", "size": 16, "sinks": 2},
            ["window of 16 keys to each side", "and the first 2 positions"],
            ["window of 16 keys before the query", "and the first 2 positions"],
        ),
        (
            {"kind": "longformer", "size": 16},
            ["Longformer: window of 16 keys to each side", "and 1 global tokens"],
            ["Longformer: window of 16 keys before the query", "and 1 global tokens"],
        ),
        (
            {"kind": "bigbird", "block": 8},
            ["BigBird, blocks of 8: 1 to each side,", "1 global, 3 random"],
            ["BigBird, blocks of 8: 1 before the query,", "1 global, 3 random"],
        ),
        ({"kind": "blocks", "rows": ["10", "11"], "block": 4}, *2 * [["matrix of 2 by 2 blocks of 4"]]),
    ],
)
def test_patterns_are_named(pattern: dict[str, Any], encoder: list[str], decoder: list[str]) -> None:
    rows = attended(attention={"pattern": pattern})
    assert rows == [
        "encoder self: source to source padding of the source",
        *encoder,
        "decoder self: target to target causal",
        *decoder,
        "decoder cross: target to source padding of the source",
    ]
    assert max(map(len, description(attention={"pattern": {**pattern}}).splitlines())) <= 80


def test_a_pattern_of_one_role_is_named_there_alone() -> None:
    rows = attended(attention={"encoder": {"pattern": {"kind": "window", "size": 4}}})
    assert rows[:3] == [
        "encoder self: source to source padding of the source",
        "window of 4 keys to each side",
        "decoder self: target to target causal",
    ]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ({"kind": "linear", "feature_map": "relu"}, "linear attention, features relu"),
        ({"kind": "performer", "features": 64}, "Performer, 64 random features"),
        ({"kind": "linformer", "width": 9}, "Linformer, 9 mixtures of positions"),
        ({"kind": "nystrom"}, "Nyströmformer, 64 landmarks"),
    ],
)
def test_kinds_without_scores_are_named(kind: dict[str, Any], text: str) -> None:
    fields: dict[str, Any] = {"attention": {"encoder": {"kind": kind}}}
    assert attended(**fields)[1] == text
    assert "(scores in decoder, cross only)" in description(**fields)
    alone = description(**fields, decoder_layers=0)
    assert "each row sums to 1" not in alone
    assert "scores_BHTS" not in alone
    assert "outputs of the heads" in alone
    assert max(map(len, description(**fields).splitlines())) <= 80
