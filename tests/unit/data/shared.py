"""Where the shared corpora are, for tests that read real data; they skip where it is absent."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3].parent / "shared" / "data"


def shared(name: str) -> Path:
    """Return a file or a directory of the shared data, or skip the test."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the shared data is not here: {name}")
    return path
