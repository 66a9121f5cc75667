"""A shortlist changes which words are considered, and nothing else."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from regard.acceleration.packed_linear import packed_weight
from regard.acceleration.shortlist_projection import ShortlistProjection
from regard.data.lexicon import Lexicon
from regard.decoding.shortlist import Shortlist
from regard.errors import InputError, ModelError
from regard.tasks.translation import Translator
from tests.unit.models import SENTENCES, small_model


@given(
    precision=st.sampled_from(["float", "int8"]),
    W=st.integers(3, 80),
    D=st.integers(1, 40),
    N=st.integers(1, 4),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_logits_are_those_of_all_words_where_they_are_listed(
    precision: str, W: int, D: int, N: int, bias: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    output = packed_weight(torch.randn(W, D), torch.randn(W) if bias else None, precision)  # type: ignore[arg-type]
    draw = np.random.default_rng(seed)
    words = [np.sort(draw.permutation(W)[: draw.integers(1, W + 1)]).astype(np.int32) for _ in range(4)]
    listed = ShortlistProjection(output, W)
    listed.admit(words[:3])
    listed.keep([2, 0])
    listed.admit(words[3:])
    x_RD = torch.randn(3 * N, D)
    found_BNW, all_BNW = listed(x_RD, slice(0, 3)).view(3, N, W), output(x_RD).view(3, N, W)
    for place, some in enumerate((words[2], words[0], words[3])):
        assert found_BNW[place][:, some].equal(all_BNW[place][:, some])
        others = np.setdiff1d(np.arange(W), some)
        assert (found_BNW[place][:, others] == -torch.inf).all()
    # One row is summed in another order than several.
    assert torch.allclose(listed(x_RD[2 * N :], slice(2, 3)), found_BNW[2], atol=1e-5)


def with_shortlist(words: list[int], precision: str = "float") -> Translator:
    """A model that may write these words, whatever it reads."""
    model, tokenizer = small_model()
    lexicon = Lexicon(np.full((tokenizer.vocab_size, 1), -1), np.array(words))
    return Translator(model, tokenizer, tokenizer, precision=precision, shortlist=Shortlist({None: lexicon}))  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["float", "int8"])
def test_a_list_of_all_words_changes_nothing(precision: str) -> None:
    pipeline = with_shortlist(list(range(small_model()[1].vocab_size)), precision)
    for options in ({}, {"groups": 2, "beam": 4}, {"sample": True, "n_best": 2}, {"coverage_penalty": 0.2}):
        every = pipeline.translate(SENTENCES[:6], to="de", **options)
        listed = pipeline.translate(SENTENCES[:6], to="de", shortlist=True, **options)
        assert [one.text for one in listed] == [one.text for one in every]
        assert [one.score for one in listed] == pytest.approx([one.score for one in every], abs=1e-6)


@pytest.mark.parametrize("precision", ["float", "int8"])
def test_only_listed_words_come_and_what_is_required(precision: str) -> None:
    _, tokenizer = small_model()
    words = sorted({*tokenizer.encode("the cat has found a small door"), 2})
    pipeline = with_shortlist(words, precision)
    for made in pipeline.translate(SENTENCES[:8], to="de", shortlist=True):
        assert {*made.tokens} <= {tokenizer.token(word) for word in words}
    made = pipeline.translate(SENTENCES[0], to="de", shortlist=True, require=["Boston"], prefix="Nobody")
    assert made.text.startswith("Nobody")
    assert "Boston" in made.text


def test_each_source_has_its_own_words(tmp_path: Path) -> None:
    likeliest_VK = np.array([[-1, -1], [4, 5], [6, -1], [7, 4]])
    shortlist = Shortlist({1: Lexicon(likeliest_VK, np.array([9])), None: Lexicon(likeliest_VK[::-1], np.array([8]))})
    shortlist.save(tmp_path / "list")
    for one in (shortlist, Shortlist.load(tmp_path / "list", 4, 10)):
        assert one.words([1, 2], [2]).tolist() == [2, 4, 5, 6, 9]
        assert one.words([2, 3], []).tolist() == [4, 5, 8]
    for sizes in ((5, 10), (4, 9)):
        with pytest.raises(ModelError, match="for another vocabulary"):
            Shortlist.load(tmp_path / "list", *sizes)
    (tmp_path / "list").write_bytes(b"x" * 100)
    with pytest.raises(ModelError, match="list is truncated or not a safetensors file"):
        Shortlist.load(tmp_path / "list", 4, 10)
    with pytest.raises(ModelError, match="does not cover the requested language"):
        Shortlist({1: shortlist.lexicons[1]}).words([2], [])


@pytest.mark.parametrize(
    "tensors",
    [
        {"all.likeliest_VK": torch.zeros(4, 2), "all.frequent_A": torch.zeros(2)},
        {"all.likeliest_VK": torch.zeros(4, 2, dtype=torch.int16)},
        {"all.likeliest_VK": torch.zeros(4, dtype=torch.int16), "all.frequent_A": torch.zeros(2, dtype=torch.int16)},
        {"all.likeliest_VK": torch.zeros(4, 2, dtype=torch.int16), "all.frequent_A": torch.tensor(3)},
        {"x.likeliest_VK": torch.zeros(4, 2, dtype=torch.int16), "x.frequent_A": torch.zeros(2, dtype=torch.int16)},
        {"strange": torch.zeros(1)},
    ],
)
def test_what_is_not_a_shortlist_is_told(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, tmp_path / "list")
    with pytest.raises(ModelError, match="list is .*not a shortlist"):
        Shortlist.load(tmp_path / "list", 4, 10)


def test_a_pipe_and_a_sparse_file_are_no_shortlists(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="pipe is a device or a pipe"):
        Shortlist.load(tmp_path / "pipe", 4, 10)
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2**31)
    with pytest.raises(ModelError, match="sparse is larger than 128 MB"):
        Shortlist.load(tmp_path / "sparse", 4, 10)


def test_a_model_without_one_says_so() -> None:
    model, tokenizer = small_model()
    pipeline = Translator(model, tokenizer, tokenizer)
    with pytest.raises(InputError, match="no shortlist; `regard shortlist` makes one"):
        pipeline.translate("it", to="de", shortlist=True)
    with pytest.raises(InputError, match="no shortlist"):
        pipeline.check("de", {"shortlist": True})
