"""The same weights, the same beam, the same documented length penalty: the same hypotheses and scores as elsewhere."""

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.acceleration.packed_decoder import PackedBackend
from regard.decoding import Request, SearchSettings
from regard.inference.decode import decode_requests
from regard.model.convert import from_huggingface
from regard.tasks.translation import Translator
from tests.parity.test_huggingface import PAD, VOCAB, peer
from tests.unit.models import SENTENCES, small_model

transformers = pytest.importorskip("transformers", reason="the peer is not installed")

LONGEST = 40


def one_that_ends(seed: int) -> Any:
    """A model with random weights that is sure of some words, and likes to come to an end."""
    torch.manual_seed(seed)
    model = peer("marian", torch.float64, max_position_embeddings=64, forced_eos_token_id=None)
    with torch.no_grad():
        model.final_logits_bias[0, 0] += 3.0
    return model


@pytest.mark.parametrize(
    ("length_penalty", "repetition_penalty"), [(0.0, 1.0), (0.6, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, 1.3), (0.6, 4.0)]
)
@pytest.mark.parametrize("beam", [1, 2, 5])
@torch.no_grad()
def test_beams_agree_with_huggingface(beam: int, length_penalty: float, repetition_penalty: float) -> None:
    compared = 0
    for seed in range(4):
        theirs = one_that_ends(seed)
        backend = PackedBackend(from_huggingface(theirs.config.to_dict(), theirs.state_dict()).eval())
        sources = [[*torch.randint(1, VOCAB - 1, (size,)).tolist(), 0] for size in (3, 5, 8, 11)]
        settings = SearchSettings(
            beam=beam, n_best=beam, length_penalty=length_penalty, repetition_penalty=repetition_penalty
        )
        requests = [Request(limit=LONGEST)] * len(sources)
        found = decode_requests(backend, sources, requests, settings)
        for source, hypotheses in zip(sources, found, strict=True):
            generated = theirs.generate(
                torch.tensor([source]),
                num_beams=beam,
                num_return_sequences=beam,
                length_penalty=length_penalty,
                repetition_penalty=repetition_penalty,
                early_stopping=True,
                do_sample=False,
                max_new_tokens=LONGEST,
                bad_words_ids=[[PAD]],
                output_scores=True,
                return_dict_in_generate=True,
            )
            expected = [[token for token in row[1:] if token not in (0, PAD)] for row in generated.sequences.tolist()]
            if any(len(tokens) >= LONGEST - 1 for tokens in expected) or any(h.cut for h in hypotheses):
                continue  # what is cut is ended by force, which each does in its own way
            assert [h.tokens for h in hypotheses] == expected
            if beam > 1:
                scores = generated.sequences_scores.tolist()
                assert [h.score for h in hypotheses] == pytest.approx(scores, abs=1e-6)
            compared += 1
    assert compared >= 8


@pytest.mark.parametrize("beam", [1, 3])
@torch.no_grad()
def test_a_start_that_is_the_end_is_penalized_as_by_huggingface(beam: int) -> None:
    same = compared = 0
    for seed in range(4):
        torch.manual_seed(seed)
        theirs = peer("bart", torch.float64, forced_eos_token_id=None, decoder_start_token_id=0)
        theirs.final_logits_bias[0, 0] += 2.0
        generation = theirs.generation_config
        generation.forced_bos_token_id = generation.forced_eos_token_id = None
        generation.decoder_start_token_id = 0
        backend = PackedBackend(from_huggingface(theirs.config.to_dict(), theirs.state_dict()).eval())
        assert backend.start == backend.end
        settings = SearchSettings(beam=beam, repetition_penalty=1.3)
        for size in (3, 5, 8):
            source = [*torch.randint(3, VOCAB - 1, (size,)).tolist(), 0]
            ((found, *_),) = decode_requests(backend, [source], [Request(limit=9)], settings, never=[PAD])
            generated = theirs.generate(
                torch.tensor([source]),
                num_beams=beam,
                repetition_penalty=1.3,
                early_stopping=beam > 1,
                do_sample=False,
                max_new_tokens=9,
                bad_words_ids=[[PAD]],
            )
            expected = [token for token in generated[0].tolist()[1:] if token not in (0, PAD)]
            same += found.tokens[:8] == expected[:8]  # what is cut is ended by force, which each does in its own way
            compared += 1
    assert same >= compared - 1


@pytest.mark.slow
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("beam", [2, 5])
def test_beams_agree_with_ctranslate2(beam: int, length_penalty: float, tmp_path: Path) -> None:
    library = pytest.importorskip("ctranslate2", reason="the peer is not installed")
    from regard.export.ctranslate2 import write_ctranslate2

    model, tokenizer = small_model(output_bias=True)
    assert model.output.bias is not None
    with torch.no_grad():
        model.output.bias[tokenizer.special] = -30.0  # each keeps it from writing these in its own way
        model.output.bias[2] = 3.0  # it likes to come to an end
    pipeline = Translator(model, tokenizer, tokenizer, precision="float")
    write_ctranslate2(pipeline, tmp_path, quantized=False)
    translator = library.Translator(str(tmp_path), device="cpu", intra_threads=1)
    texts = SENTENCES[::3]
    ours = pipeline.translate(texts, to="de", beam=beam, n_best=beam, length_penalty=length_penalty)
    compared = 0
    for text, made in zip(texts, ours, strict=True):
        source = pipeline.encoded(text, "de")
        (theirs,) = translator.translate_batch(
            [[pipeline.source.token(number) for number in source]],
            beam_size=beam,
            num_hypotheses=beam,
            length_penalty=length_penalty,
            max_decoding_length=pipeline.limit(source),
            min_decoding_length=0,
            return_scores=True,
        )
        hypotheses = [made, *made.alternatives]
        if any(one.cut for one in hypotheses):
            continue
        for one, tokens, score in zip(hypotheses, theirs.hypotheses, theirs.scores, strict=True):
            assert one.score == pytest.approx(score, abs=1e-4)
            assert one.tokens == tokens or any(
                abs(one.score - other.score) < 1e-4 for other in hypotheses if other is not one
            )
        compared += 1
    assert compared >= len(texts) // 3
