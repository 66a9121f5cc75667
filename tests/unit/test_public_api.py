import subprocess
import sys

import pytest

import regard


def test_importing_is_light_and_changes_nothing() -> None:
    script = "import sys, regard; print('torch' in sys.modules, 'pydantic' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "False False\n"


@pytest.mark.parametrize("name", regard.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert name in dir(regard)
    assert getattr(regard, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="translator"):
        _ = regard.translator
