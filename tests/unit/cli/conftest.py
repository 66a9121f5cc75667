import pytest


@pytest.fixture(autouse=True)
def _allocator_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verbs change how this process allocates memory; the other tests should not live with that."""
    monkeypatch.setattr("regard.memory.keep_memory", lambda: True)
