"""How the kernels are found, chosen and checked, and what becomes of their errors."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.errors import InputError, KernelError, OutOfMemoryError, RegardError
from regard.kernels import bindings
from regard.kernels.bindings import LIBRARY, kernel_status, kernels, layout, library
from regard.training.diagnostics import _kernels

needs_kernels = pytest.mark.skipif(kernels() is None, reason=f"there are no kernels: {kernel_status().reason}")
needs_vnni = pytest.mark.skipif(kernel_status().level != "vnni", reason="the processor has no AVX-512 VNNI")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def run(code: str, **environment: str) -> str:
    """Run Python in another process, where the kernels have not been loaded yet; return what it prints."""
    found = subprocess.run(
        [sys.executable, "-c", f"from regard.kernels import bindings\nfrom regard.kernels.bindings import *\n{code}"],
        env={**os.environ, "REGARD_KERNELS": "", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def regard(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "regard", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


STATUS = "print(*kernel_status()[:2], kernels() is None, sep='|')"


@needs_kernels
def test_all_structs_have_the_sizes_and_offsets_of_the_library() -> None:
    assert library().regard_layout().decode() == layout()
    assert len(layout().splitlines()) == len(bindings.STRUCTS)


@needs_kernels
@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ("('weight', c_void_p), ('bias', c_void_p), ('eps', c_double), ('centered', c_int32)", "the struct Norm"),
        ("('weight', c_void_p), ('bias', c_void_p), ('centered', c_int32), ('eps', c_float)", "the struct Norm"),
    ],
    ids=["another size", "the same size, other offsets"],
)
def test_a_library_with_another_layout_is_not_used(fields: str, difference: str) -> None:
    code = f"""
from ctypes import *
class Norm(Structure):
    _fields_ = ({fields},)
bindings.STRUCTS = tuple(Norm if struct.__name__ == "Norm" else struct for struct in bindings.STRUCTS)
{STATUS}
"""
    level, reason, none = run(code).split("|")
    assert (level, none) == ("None", "True")
    assert difference in reason
    assert "install regard again" in reason


@needs_kernels
def test_a_library_without_a_struct_is_not_used() -> None:
    code = f"""
import ctypes
class Unknown(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int),)
bindings.STRUCTS += (Unknown,)
{STATUS}
"""
    assert "it does not have the struct Unknown" in run(code)


def statuses(*cases: tuple[Path, str]) -> list[str]:
    """Return the status, or the error, for libraries and choices of REGARD_KERNELS."""
    code = f"""
import os
from pathlib import Path
for bindings.LIBRARY, os.environ["REGARD_KERNELS"] in {[(str(path), choice) for path, choice in cases]}:
    bindings.LIBRARY = Path(bindings.LIBRARY)
    bindings._load.cache_clear()
    kernels.cache_clear()
    try:
        {STATUS}
    except ConfigError as error:
        print(error)
"""
    return run(code).splitlines()


def test_a_library_that_is_missing_or_broken_is_not_used(tmp_path: Path) -> None:
    missing, text = tmp_path / "missing.so", tmp_path / "text.so"
    text.write_text("not a library")
    not_built, chosen, broken = statuses((missing, ""), (missing, "avx2"), (text, ""))
    reason = (
        "they were not built when the package was installed"
        if platform.machine() == "x86_64" and sys.platform != "win32"
        else "there are none for"
    )
    assert not_built.startswith(f"None|{reason}")
    assert chosen.startswith(f"REGARD_KERNELS is avx2, but there are no kernels: {reason}")
    assert broken.startswith(f"None|{text} cannot be loaded: ")


@pytest.mark.parametrize(
    ("machine", "system", "reason", "advises"),
    [
        ("x86_64", "linux", "they were not built when the package was installed", True),
        ("x86_64", "darwin", "they were not built when the package was installed", True),
        ("arm64", "darwin", "there are none for arm64 on darwin", False),
        ("aarch64", "linux", "there are none for aarch64 on linux", False),
        ("AMD64", "win32", "there are none for AMD64 on win32", False),
    ],
)
def test_advice_to_build_kernels_is_given_where_they_can_be_built(
    machine: str, system: str, reason: str, advises: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bindings, "LIBRARY", tmp_path / "missing.so")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.delenv("REGARD_KERNELS", raising=False)
    _, status = bindings._load.__wrapped__()
    assert (status.level, status.reason) == (None, reason)
    assert bool(status.advice) == advises
    finding = _kernels(status)
    assert (finding.text, finding.advice) == (f"none, torch computes instead: {reason}.", status.advice)


def stub(path: Path, *, level: int, version: int = bindings._VERSION, without: str = "") -> Path:
    """A library with the functions of the kernels that do nothing, for a processor of this level."""
    values = {"regard_version": version, "regard_best_level": level, "regard_level": level}
    names = [name for name in (*bindings._VALUES, *bindings._KERNELS) if name not in ("regard_layout", without)]
    lines = [f"int {name}(void) {{ return {values.get(name, 0)}; }}" for name in names]
    text = layout().replace("\n", "\\n")
    source = path.with_suffix(".c")
    source.write_text("\n".join([*lines, f'const char *regard_layout(void) {{ return "{text}"; }}']))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, source], check=True)
    return path


@needs_compiler
def test_a_library_of_another_version_is_not_used(tmp_path: Path) -> None:
    older = stub(tmp_path / "older.so", level=2, version=1)
    lacking = stub(tmp_path / "lacking.so", level=2, without="regard_step")
    assert statuses((older, ""), (lacking, "")) == [
        f"None|{path} is of another version; install regard again|True" for path in (older, lacking)
    ]


@needs_compiler
def test_a_processor_may_have_less_than_was_asked_for(tmp_path: Path) -> None:
    avx2, none = (stub(tmp_path / f"{level}.so", level=level) for level in (1, 0))
    assert statuses((avx2, ""), (avx2, "avx2"), (avx2, "vnni"), (avx2, "off"), (none, ""), (none, "avx2")) == [
        "avx2||False",
        "avx2||False",
        "REGARD_KERNELS is vnni, but this processor does not have AVX-512 VNNI",
        "None|REGARD_KERNELS is off|True",
        "None|this processor does not have AVX2 and FMA|True",
        "REGARD_KERNELS is avx2, but this processor does not have AVX2 and FMA",
    ]


PRODUCT = """
import torch
from regard.acceleration.int8_matmul import BOTH_STOCHASTIC, NEAREST, _product_by_formula, int8_matmul
from regard.acceleration.packed_linear import _weight_steps, packed_weight
torch.manual_seed(0)
x, weight = torch.randn(9, 40), torch.randn(33, 40)
for rounding in (NEAREST, BOTH_STOCHASTIC):
    difference = int8_matmul(x, weight, None, rounding) - _product_by_formula(x, weight, None, rounding)
    assert difference.abs().max() < 1e-4, difference.abs().max()
steps = (weight / weight.abs().amax(1, keepdim=True)).abs()
# A row with one 1 gives the rounded weights themselves.
rounded = int8_matmul(torch.eye(40), weight, None, NEAREST).T / weight.abs().amax(1, keepdim=True)
grid = [steps for steps in (64, 127) if ((rounded * steps).round() / steps - rounded).abs().max() < 1e-5]
print(kernel_status().level, *grid, _weight_steps(), type(packed_weight(weight, None, "int8")).__name__)
"""


@needs_kernels
def test_the_avx2_kernels_run_wherever_there_are_any() -> None:
    """With the steps that fit into their 16-bit sums, in the kernel and in the formula alike."""
    assert run(PRODUCT, REGARD_KERNELS="avx2") == "avx2 64 64 KernelInt8Linear"


@needs_vnni
def test_the_vnni_kernels_round_to_more_steps() -> None:
    assert run(PRODUCT, REGARD_KERNELS="vnni") == "vnni 127 127 KernelInt8Linear"


def test_kernels_can_be_turned_off() -> None:
    assert run(f"{PRODUCT}\n{STATUS}", REGARD_KERNELS="off").endswith(
        " TorchInt8Linear\nNone|REGARD_KERNELS is off|True"
    )


@needs_kernels
def test_an_unset_or_empty_choice_is_the_best_level() -> None:
    best = {1: "avx2", 2: "vnni"}[library().regard_best_level()]
    code = f"import os; os.environ.pop('REGARD_KERNELS'); {STATUS}"
    assert [run(code, REGARD_KERNELS=""), *statuses((LIBRARY, ""))] == [f"{best}||False"] * 2


def test_an_unknown_choice_is_an_error_when_kernels_are_first_needed() -> None:
    code = """
import torch
from regard.kernels.dispatch import can_compute
for attempt in (kernels, kernel_status, lambda: can_compute(torch.ones(1))):
    try:
        attempt()
    except ConfigError as error:
        print(error)
"""
    sentence = "REGARD_KERNELS is 'sse'; it must be off, avx2 or vnni, or not be set"
    assert run(code, REGARD_KERNELS="sse") == "\n".join([sentence] * 3)


@pytest.mark.parametrize("arguments", [["translate", "Hallo"], ["train", "dates", "--dry-run"], ["doctor"]])
def test_the_command_line_refuses_an_unknown_choice(arguments: list[str]) -> None:
    refused = regard(*arguments, REGARD_KERNELS="sse")
    assert refused.returncode == 2, refused.stderr
    assert refused.stderr.strip() == "regard: REGARD_KERNELS is 'sse'; it must be off, avx2 or vnni, or not be set"


@needs_kernels
def test_errors_of_kernels_have_kinds() -> None:
    fail = library().regard_fail
    assert fail(0) is None
    with pytest.raises(OutOfMemoryError, match="not enough memory") as memory:
        fail(1)
    assert isinstance(memory.value, MemoryError)
    with pytest.raises(InputError, match="regard_fail: asked to fail"):
        fail(2)
    with pytest.raises(KernelError, match="regard_fail failed: asked to fail"):
        fail(3)
    with pytest.raises(KernelError, match="regard_fail failed: an exception without a text"):
        fail(4)
    assert all(issubclass(kind, RegardError) for kind in (OutOfMemoryError, KernelError))


@needs_kernels
def test_the_text_of_an_error_is_its_own_threads() -> None:
    code = """
import threading
def fail(found):
    try:
        library().regard_select_outputs(LinearPointers(), None, -1, None, None, None, None)
    except InputError as error:
        found.append(str(error))
try:
    library().regard_fail(3)
except Exception:
    pass
found = []
thread = threading.Thread(target=fail, args=(found,))
thread.start()
thread.join()
print(found[0], library().regard_last_error().decode(), sep="|")
"""
    assert run(code) == "regard_select_outputs: the number of outputs must not be negative|asked to fail"


@needs_kernels
def test_kernels_refuse_what_they_cannot_read() -> None:
    labels, logits, losses = torch.tensor([3]), torch.zeros(1, 3), torch.zeros(1)
    with pytest.raises(InputError, match="regard_nll: a label is outside the vocabulary"):
        library().regard_nll(logits.data_ptr(), labels.data_ptr(), 1, 3, 0.1, 1, losses.data_ptr())
    with pytest.raises(InputError, match="the size of a head must be a multiple of 8"):
        library().regard_attention(bindings.Attention(H=1, G=1, K=4, V=8), 1)
    with pytest.raises(InputError, match="the sampled loss takes one pass or two"):
        library().regard_sampled_loss(bindings.SampledLoss(P=3), 1)
    with pytest.raises(InputError, match="a level that this processor does not have"):
        library().regard_set_level(3)
    with pytest.raises(ctypes.ArgumentError):
        library().regard_int8_matmul(bindings.Sgemm(), 1)
