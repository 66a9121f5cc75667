"""Build the kernels with the package, where there is a compiler; without one the package works all the same."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent / "src" / "regard" / "kernels"


class Kernels(BuildHookInterface):
    """Compiles `kernels/csrc/` to a library beside it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this platform if that went well."""
        if self.target_name != "wheel":
            return
        missing = _compile()
        if missing is not None:
            self.app.display_warning(f"regard works without its kernels, but translates more slowly: {missing}")
            return
        build_data["artifacts"].append("src/regard/kernels/kernels.so")
        build_data["pure_python"] = False
        system = "linux" if sys.platform.startswith("linux") else "macosx_11_0"
        build_data["tag"] = f"py3-none-{system}_{platform.machine()}"


def _compile() -> str | None:
    """Build the library; return why that was not possible, or None."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if platform.machine() != "x86_64" or sys.platform == "win32":
        return f"there are none for {platform.machine()} on {sys.platform}"
    if compiler is None:
        return "there is no C++ compiler"
    beside = ROOT / f".kernels-{os.getpid()}.so"
    options = ["-O3", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-pthread"]
    try:
        subprocess.run(
            [*compiler.split(), *options, "-o", beside, *sorted((ROOT / "csrc").glob("*.cpp"))],
            check=True,
            capture_output=True,
        )
        beside.replace(ROOT / "kernels.so")
    except OSError as error:
        return f"{compiler}: {error}"
    except subprocess.CalledProcessError as error:
        return f"{compiler}: {error.stderr.decode(errors='replace')}"
    finally:
        beside.unlink(missing_ok=True)
    return None
