"""A virtual environment for each peer: their pins clash."""

import os
import subprocess
import sys
from pathlib import Path

TORCH = "torch==2.13.0"
PEERS = {
    "torch": [TORCH, "numpy"],
    "marian": [TORCH, "numpy", "transformers==5.22.2"],
    "joeynmt": [TORCH, "joeynmt==2.3.0", "importlib_metadata", "safetensors"],  # it imports what it does not ask for
    "eole": [TORCH, "eole==0.6.4"],
    "long": [
        TORCH,
        "numpy",
        "local-attention==1.11.2",
        "performer-pytorch==1.1.4",
        "linformer==0.2.3",
        "nystrom-attention==0.0.14",
    ],
    "ctranslate2": ["ctranslate2==4.8.4", "numpy"],
}


def python_of(peer: str) -> str:
    """Return the interpreter of a peer's environment, made when it is first asked for."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "regard" / "peers" / peer
    ready, python = home / ".ready", home / "bin" / "python"
    wanted = "\n".join(PEERS[peer])
    if not ready.exists() or ready.read_text() != wanted:
        print(f"setting up {peer} in {home}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS[peer]], check=True)
        ready.write_text(wanted)
    return str(python)
