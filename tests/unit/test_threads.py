"""Threads in forked children."""

import os
import subprocess
import sys

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")


def run(code: str, **environment: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


FORK = """
import os, signal, sys
import torch

def in_child(work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs is killed
        try:
            print(work(), flush=True)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]
"""

TRANSLATE = """
import regard
torch.set_num_threads(2)
pipeline = regard.load("de-en", precision=PRECISION)
texts = ["Ein Mann steht auf einer Leiter.", "Zwei Hunde spielen im Schnee."] * 20
# All threads are busy before the fork: torch's, and those of the kernels.
torch.randn(700, 700) @ torch.randn(700, 700)
torch.randn(1 << 20).exp()
expected = [translation.text for translation in pipeline.translate(texts, to="en")]
alone = pipeline.translate(texts[0], to="en").text

def work():
    several = [translation.text for translation in pipeline.translate(texts, to="en")]
    torch.randn(700, 700) @ torch.randn(700, 700)
    return several == expected, pipeline.translate(texts[0], to="en").text == alone, torch.get_num_threads()

print("ended with", in_child(work), in_child(work), torch.get_num_threads())
"""


@needs_fork
@pytest.mark.parametrize("precision", ["int8", "float"])
@pytest.mark.parametrize("kernels", ["", "off"])
def test_a_forked_child_translates_with_one_thread(precision: str, kernels: str) -> None:
    found = run(FORK + TRANSLATE.replace("PRECISION", repr(precision)), REGARD_KERNELS=kernels)
    assert found.splitlines() == ["(True, True, 1)", "(True, True, 1)", "ended with 0 0 2"]


TRAIN = """
import tempfile
import regard
from regard.training import Run

run = Run.from_toml('''
data.train = [{kind = "dates", count = 300}]
tokenizer = {vocab_size = 300}
model = {preset = "tiny", d_model = 64, num_heads = 2, encoder_layers = 1, decoder_layers = 1}
training = {steps = 3, batch_tokens = 2000, precision = "PRECISION", softmax_gradient = "sampled"}
''')

def work():
    directory = regard.train(run, tempfile.mkdtemp())
    return regard.Transformer.load(directory).config.d_model, torch.get_num_threads()

torch.set_num_threads(2)
work()
print("ended with", in_child(work), torch.get_num_threads())
"""


@needs_fork
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_forked_child_trains_with_one_thread(precision: str) -> None:
    found = run(FORK + TRAIN.replace("PRECISION", precision))
    assert found.splitlines() == ["(64, 1)", "ended with 0 2"]


@needs_fork
def test_kernels_have_threads_of_their_own_in_a_forked_child_that_asks_for_them() -> None:
    code = """
from regard.acceleration.int8_matmul import NEAREST, int8_matmul
from regard.acceleration.process import prepare_process
prepare_process()
torch.set_num_threads(2)
x, weight = torch.randn(500, 256), torch.randn(512, 256)
expected = int8_matmul(x, weight, None, NEAREST)

def work():
    before = torch.get_num_threads()
    from regard.kernels import dispatch
    dispatch._threads.set(2)  # torch itself would wait for ever for its own
    return before, dispatch.threads(), torch.equal(int8_matmul(x, weight, None, NEAREST), expected)

print("ended with", in_child(work))
"""
    assert run(FORK + code).splitlines() == ["(1, 2, True)", "ended with 0"]


@needs_fork
def test_importing_the_package_changes_nothing_in_forked_children() -> None:
    code = "import regard, regard.pipelines, regard.training\ntorch.set_num_threads(2)\n"
    assert run(FORK + code + "in_child(torch.get_num_threads)") == "2"
