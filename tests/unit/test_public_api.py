import subprocess
import sys

import pytest

import regard


def test_importing_is_light_and_changes_nothing() -> None:
    script = "import sys, regard; print({'torch', 'pydantic', 'matplotlib'} & {*sys.modules})"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"


@pytest.mark.parametrize("name", ["export", "inspection", "layers", "models", "ops", "recipes", "tasks"])
def test_a_package_is_there_without_an_import_of_its_own(name: str) -> None:
    script = f"import regard; print(regard.{name}.__name__)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == f"regard.{name}\n"


@pytest.mark.parametrize("name", regard.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert name in dir(regard)
    assert getattr(regard, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="translator"):
        _ = regard.translator
