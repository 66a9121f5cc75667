"""Makes the data of topics.toml and characters.toml from the docstrings of packages that are here already.

    python examples/docstrings.py

`data/topics` beside this file has the first paragraphs of docstrings as `text` and the package that they are from as
`label`; `data/characters` has all docstrings of each module of the standard library as one `text`. All docstrings of a
module go into one part: train, valid or test. The packages are read, not imported.
"""

import ast
import hashlib
import importlib.util
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("networkx", "sympy", "torch")
"""What torch needs, and torch itself: graphs, algebra, tensors. The fourth topic is Python's standard library."""
LIBRARY = "python"
LEFT_OUT = ("site-packages", "test", "tests", "testing", "idlelib", "lib2to3")
"""Directories whose docstrings are not about what a package does."""
FEWEST_WORDS = 6


def home_of(package: str) -> Path:
    """Return the directory of a package."""
    if package == LIBRARY:
        return Path(sysconfig.get_paths()["stdlib"])
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed; it comes with torch")
    return Path(spec.origin).parent


def docstrings(home: Path) -> Iterator[tuple[str, str]]:
    """Yield the module and the text of each docstring below a directory, in the order of the files."""
    for path in sorted(home.rglob("*.py")):
        module = path.relative_to(home)
        if set(module.parts) & set(LEFT_OUT):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except SyntaxError:  # a template, or written for another Python
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text and text.isascii():
                    yield module.as_posix(), text


def part_of(module: str) -> str:
    """Return the part that a module belongs to, by its name: a tenth for validation, a tenth for testing."""
    number = hashlib.sha256(module.encode()).digest()[0] % 10
    return {0: "valid", 1: "test"}.get(number, "train")


def first_paragraph(text: str) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join(text.partition("\n\n")[0].split())


def topics() -> dict[str, list[dict[str, str]]]:
    """Return the examples of each part: first paragraphs, each once, that do not name the package."""
    parts: dict[str, list[dict[str, str]]] = {"train": [], "valid": [], "test": []}
    seen: set[str] = set()
    for package in (*PACKAGES, LIBRARY):
        for module, docstring in docstrings(home_of(package)):
            text = first_paragraph(docstring)
            if text in seen or len(text.split()) < FEWEST_WORDS or package in text.lower():
                continue
            seen.add(text)
            parts[part_of(module)].append({"text": text, "label": package})
    return parts


def characters() -> dict[str, list[dict[str, str]]]:
    """Return the texts of each part: the docstrings of a module of the standard library, one below the other."""
    modules: dict[str, list[str]] = {}
    for module, docstring in docstrings(home_of(LIBRARY)):
        modules.setdefault(module, []).append(docstring)
    parts: dict[str, list[dict[str, str]]] = {"train": [], "valid": [], "test": []}
    for module, texts in modules.items():
        parts[part_of(module)].append({"module": module, "text": "\n\n".join(dict.fromkeys(texts))})
    return parts


def main(out: Path = Path(__file__).parent / "data") -> None:
    """Write both."""
    for name, parts in (("topics", topics()), ("characters", characters())):
        (out / name).mkdir(parents=True, exist_ok=True)
        for part, examples in parts.items():
            path = out / name / f"{part}.jsonl"
            path.write_text("".join(json.dumps(example) + "\n" for example in examples), encoding="utf-8")
            print(f"{path}: {len(examples):,} texts", file=sys.stderr)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
