"""Build the kernels with the package, where there is a compiler; without one the package works all the same."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent / "src" / "regard" / "native"


class Kernels(BuildHookInterface):
    """Compiles what is in `native/` to a library beside it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say that the wheel is for this platform if that went well."""
        if self.target_name != "wheel" or not _compiled():
            return
        build_data["artifacts"].append("src/regard/native/kernels.so")
        build_data["pure_python"] = False
        system = "linux" if sys.platform.startswith("linux") else "macosx_11_0"
        build_data["tag"] = f"py3-none-{system}_{platform.machine()}"


def _compiled() -> bool:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None or platform.machine() != "x86_64" or sys.platform == "win32":
        return False
    beside = ROOT / f".kernels-{os.getpid()}.so"
    options = ["-O3", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-pthread"]
    try:
        subprocess.run(
            [*compiler.split(), *options, "-o", beside, *sorted(ROOT.glob("*.cpp"))], check=True, capture_output=True
        )
        beside.replace(ROOT / "kernels.so")
    except (OSError, subprocess.CalledProcessError):
        beside.unlink(missing_ok=True)
        return False
    return True
