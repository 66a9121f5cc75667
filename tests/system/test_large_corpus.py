"""A corpus of a gigabyte is encoded and trained on in memory that does not grow with it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

_PROGRAM = """
import resource, sys
from pathlib import Path
from regard.cli import main
sys.argv = ["regard", "train", sys.argv[1], "--out", sys.argv[2]]
try:
    main()
finally:
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print("peak MiB", peak / 1024)
"""

_RUN = """
[data]
train = [{kind = "parallel", source = "source.txt", target = "target.txt"}]
cache = "cache"
[tokenizer]
vocab_size = 8000
[model]
preset = "tiny"
[training]
steps = 20
batch_tokens = 2048
"""


def write_corpus(path: Path, blocks: int, seed: int) -> None:
    """Write lines of made-up words, a few of them common and many rare, as in any language: 30,000 lines a block."""
    random = np.random.default_rng(seed)
    letters = np.array(list("aeioubcdfghklmnprstvwz"))
    words = ["".join(random.choice(letters, int(length))) for length in random.integers(2, 11, 50_000)]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(blocks):
            ranks = np.minimum(random.zipf(1.2, (30_000, 14)) - 1, len(words) - 1)
            file.writelines(" ".join(words[rank] for rank in row) + "\n" for row in ranks.tolist())


@pytest.mark.slow
def test_memory_stays_flat(tmp_path: Path) -> None:
    for name, seed in (("source.txt", 1), ("target.txt", 2)):
        write_corpus(tmp_path / name, 190, seed)
    assert sum((tmp_path / name).stat().st_size for name in ("source.txt", "target.txt")) > 0.95e9
    (tmp_path / "run.toml").write_text(_RUN)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "run.toml"), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    peak = float(done.stdout.split("peak MiB")[1])
    assert peak < 1500, f"{peak:.0f} MiB"
