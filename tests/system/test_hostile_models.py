"""Model directories from a stranger: whatever is in them, loading and translating ends, in one sentence or well.

python -m tests.system.test_hostile_models 5000 [FIRST]    # many more than the ordinary tests try
"""

import json
import os
import random
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from regard import models
from regard.decoding import SearchSettings
from regard.errors import ModelError, RegardError

SECONDS, MEGABYTES = 5.0, 1000.0
_STUCK = 60.0  # seconds without a word, on a machine that others use too; a case's own time is counted in CPU time
_ROOT = Path(__file__).parents[2]

JSON_FILES = ("config.json", "generation.json", "task.json", "tokenizer.json")
TENSOR_FILES = ("model.safetensors", "shortlist.safetensors")
FILES = JSON_FILES + TENSOR_FILES


# What is done to a directory. Each takes a source of rng and the directory, whose files may all be replaced.


def read(directory: Path, name: str) -> bytes:
    path = directory / name
    return path.read_bytes() if path.is_file() and path.stat().st_size < 1 << 28 else b""


def write(directory: Path, name: str, content: bytes) -> None:
    (directory / name).unlink(missing_ok=True)  # a link to the original
    (directory / name).write_bytes(content)


def flip_bytes(rng: random.Random, directory: Path) -> None:
    name = rng.choice(FILES)
    content = bytearray(read(directory, name))
    for _ in range(rng.choice([1, 3, 30, 1000]) if content else 0):
        content[min(int(rng.expovariate(1 / 2000)), len(content) - 1) * rng.choice([1, -1])] = rng.randrange(256)
    write(directory, name, bytes(content))


def truncate(rng: random.Random, directory: Path) -> None:
    name = rng.choice(FILES)
    content = read(directory, name)
    write(directory, name, content[: rng.choice([0, 1, 8, 100, rng.randrange(len(content) + 1)])])


def splice(rng: random.Random, directory: Path) -> None:
    name, other = rng.choice(FILES), rng.choice(FILES)
    content, more = read(directory, name), read(directory, other)
    at, start = rng.randrange(len(content) + 1), rng.randrange(len(more) + 1)
    write(directory, name, content[:at] + more[start : start + 200] + content[at + rng.choice([0, 5, 500]) :])


def hostile_value(rng: random.Random) -> Any:
    numbers = [
        -1,
        0,
        1,
        2,
        3,
        7,
        64,
        100,
        999,
        1000,
        1024,
        4097,
        2**16,
        2**24,
        2**31 - 1,
        2**31,
        2**53 + 1,
        2**63,
        2**64,
    ]
    deep: Any = "bottom"
    for _ in range(rng.choice([3, 31, 33, 400, 800])):
        deep = [deep] if rng.random() < 0.5 else {"type": deep}
    return rng.choice(
        [
            *numbers,
            10**30,
            10**4000,
            *[0.0, 0.5, 1.0, -0.0, 1e-320, 1e-30, 1e30, 1e308, float("nan"), float("inf"), -float("inf")],
            *[
                None,
                True,
                False,
                "",
                "x",
                "x" * 3200,
                "x" * 10**6,
                "a\nb",
                "\ud800",
                "\0",
                "🐕",
                "<unk>",
                "none",
                "learned",
            ],
            *[[], {}, [[]], [1, 2], {"type": "Sequence"}, {"": 0}, deep, list(range(100_000)), [[]] * 100_000],
            {f"key{n}": n for n in range(50_000)},
        ]
    )


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Each container and key, or place, in it; of long ones only some."""
    if isinstance(content, dict | list):
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        for key in keys if len(keys) < 50 else [*keys[:6], *keys[-3:]]:
            yield content, key
            yield from places(content[key])


def dumped(content: Any) -> bytes:
    return json.dumps(content).encode("utf-8", "surrogatepass")


def mutate_tree(rng: random.Random, content: Any) -> None:
    for _ in range(rng.choice([1, 1, 1, 3])):
        found = list(places(content))
        if not found:
            return
        inside, key = rng.choice(found)
        what = rng.random()
        if what < 0.6:
            inside[key] = hostile_value(rng)
        elif what < 0.75:
            del inside[key]
        elif isinstance(inside, dict):
            name = rng.choice(["type", "beam", "x" * 300, "a\nb", "", "d_model", str(key).upper()])
            inside[name] = inside.pop(key) if what < 0.9 else hostile_value(rng)
        else:
            inside.append(rng.choice(inside))


def mutate_json(rng: random.Random, directory: Path) -> None:
    name = rng.choice(JSON_FILES)
    with suppress(ValueError):
        content = json.loads(read(directory, name))
        mutate_tree(rng, content)
        write(directory, name, dumped(content))


def mutate_settings(rng: random.Random, directory: Path) -> None:
    names = rng.sample(sorted(SearchSettings.model_fields), rng.choice([1, 2, 4]))
    settings: dict[str, Any] = {name: hostile_value(rng) for name in names}
    if rng.random() < 0.5:
        settings |= {
            "sample": True,
            "n_best": rng.choice([1, 100]),
            "temperature": rng.choice([1e-320, 1e-5, 1e308]),
        }
    if rng.random() < 0.5:
        most = {
            "beam": 100,
            "min_length": 50,
            "max_length": 300,
            "no_repeat": 1,
            "coverage_penalty": 1e308,
            "diversity": 1e308,
            "groups": 50,
        }
        settings |= dict(rng.sample(sorted(most.items()), 3))
    write(directory, "generation.json", dumped(settings))


def write_odd_json(rng: random.Random, directory: Path) -> None:
    name = rng.choice(JSON_FILES)
    text = read(directory, name).decode("utf-8", "replace").rstrip().removesuffix("}")
    keys = ", ".join(f'"k{n}": 0' for n in range(rng.choice([10, 60_000])))
    odd = rng.choice(
        [
            text + ', "model": {}}',
            text + ', "beam": 1, "beam": 2}',
            text + f", {keys}, " + '"k0": 1}',
            text + f", {keys}" + "}",
            "[" * rng.choice([10, 900, 100_000]),
            '{"a":' * rng.choice([900, 100_000]),
            '{"model":' + "[" * 900 + "]" * 900 + "}",
            "9" * 10_000,
            '{"format": ' + "9" * 4299 + "}",
            text + "}" + " " * 3_000_000,
            "\ufeff" + text + "}",
            "{" + ",".join(["[]"] * 1_000_000),
            '{"a": [' + ",".join(["[]"] * rng.choice([300_000, 1_490_000, 5_000_000])) + "]}",
            '{"a": {' + ",".join(f'"{n}":0' for n in range(rng.choice([80_000, 1_490_000]))) + "}}",
            '{"a": "' + "🐕" * 300_000 + '"}',
        ]
    )
    write(directory, name, odd.encode())


def grow(rng: random.Random, directory: Path) -> None:
    name = rng.choice(FILES)
    write(directory, name, read(directory, name) if rng.random() < 0.5 else b"")
    os.truncate(directory / name, rng.choice([5 << 20, 100 << 20, 2 << 30, 1 << 40]))


def be_no_file(rng: random.Random, directory: Path) -> None:
    path = directory / rng.choice((*FILES, "source-tokenizer.json"))
    path.unlink(missing_ok=True)
    target = rng.choice(["zero", "random", "null", "pipe", "directory", "loop", "nowhere", "missing", "proc"])
    links = {
        "zero": "/dev/zero",
        "random": "/dev/urandom",
        "null": "/dev/null",
        "loop": path.name,
        "nowhere": "nowhere",
    }
    if target == "pipe":
        os.mkfifo(path)
    elif target == "directory":
        path.mkdir()
    elif target == "proc":
        path.symlink_to("/proc/self/" + rng.choice(["mem", "maps", "environ"]))
    elif target in links:
        path.symlink_to(links[target])


def swap_files(rng: random.Random, directory: Path) -> None:
    first, second = rng.sample((*FILES, "source-tokenizer.json"), 2)
    write(directory, second, read(directory, first))


def mutate_header(rng: random.Random, directory: Path) -> None:
    name = rng.choice(TENSOR_FILES)
    content = read(directory, name)
    size = int.from_bytes(content[:8], "little")
    with suppress(ValueError, UnicodeDecodeError):
        header = json.loads(content[8 : 8 + size])
        what = rng.random()
        if what < 0.7:
            mutate_tree(rng, header)
        elif what < 0.8:
            header |= {f"t{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(90_000)}
        elif what < 0.9:
            header |= {
                f"encoder.layers.{n}.": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(1000)
            }
        text = dumped(header)
        length = rng.choice([len(text)] * 5 + [0, 1, 2**24, 10**8, 2**63, 2**64 - 1])
        write(directory, name, length.to_bytes(8, "little") + text + content[8 + size :])


def fill_weights(rng: random.Random, directory: Path) -> None:
    content = bytearray(read(directory, "model.safetensors"))
    start = 8 + int.from_bytes(content[:8], "little")
    if start < len(content):
        value = rng.choice(
            [b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff\xff\x7f\x7f", b"\x00" * 4, b"\x01\x00\x00\x00"]
        )
        at = rng.randrange(start, len(content))
        count = min(rng.choice([4, 400, len(content)]), len(content) - at) // 4 * 4
        content[at : at + count] = value * (count // 4)
    write(directory, "model.safetensors", bytes(content))


def mutate_tokenizer(rng: random.Random, directory: Path) -> None:
    with suppress(ValueError, KeyError, TypeError, IndexError, AttributeError):
        content = json.loads(read(directory, "tokenizer.json"))
        model, vocabulary = content["model"], content["model"]["vocab"]
        token = rng.choice(list(vocabulary))
        long = "x" * rng.choice([100, 3200, 10**7])
        changes: list[Callable[[], Any]] = [
            lambda: content["normalizer"]["normalizers"].append({"type": "Prepend", "prepend": long}),
            lambda: content["normalizer"]["normalizers"][1].update(prepend=long),
            lambda: content.update(normalizer={"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": long}),
            lambda: content.update(
                pre_tokenizer={"type": "Split", "pattern": {"Regex": "(.*)*x"}, "behavior": "Isolated"}
            ),
            lambda: content["decoder"]["decoders"].append(
                {"type": "Replace", "pattern": {"String": ""}, "content": long}
            ),
            lambda: content.update(post_processor={"type": "TemplateProcessing", "single": [], "pair": []}),
            lambda: vocabulary.pop(rng.choice(["<unk>", "<pad>", "</s>", "<0x41>", token])),
            lambda: vocabulary.update({token: rng.choice([0, 3, -1, 2**31, 2**40])}),
            lambda: vocabulary.update({long: len(vocabulary)}),
            lambda: vocabulary.update({long: vocabulary.pop(token)}),
            lambda: model["merges"].append(rng.choice([[token, long], [token, token], [long], ["", ""], "t h"])),
            lambda: model["merges"].extend(model["merges"][:50]),
            lambda: model.update(merges=[]),
            lambda: model.update(type=rng.choice(["WordLevel", "Unigram", "WordPiece"])),
            lambda: content.update(
                model={
                    "type": "WordLevel",
                    "vocab": {key: n for key, n in vocabulary.items() if n != 3},
                    "unk_token": "<unk>",
                }
            ),
            lambda: model.update(rng.choice([{"dropout": 0.5}, {"unk_token": None}, {"ignore_merges": True}])),
            lambda: content["added_tokens"].append({**content["added_tokens"][0], "id": 9, "content": long}),
            lambda: content["added_tokens"][rng.randrange(4)].update(content=rng.choice([long, "e", " "])),
            lambda: content["added_tokens"][rng.randrange(4)].update(special=False, normalized=True),
            lambda: content["added_tokens"].extend(content["added_tokens"] * 5000),
        ]
        rng.choice(changes)()
        write(directory, "tokenizer.json", dumped(content))


MUTATIONS: list[Callable[[random.Random, Path], None]] = [
    *[
        flip_bytes,
        truncate,
        splice,
        mutate_json,
        mutate_json,
        mutate_json,
        write_odd_json,
        grow,
        be_no_file,
        swap_files,
    ],
    *[mutate_header, mutate_header, fill_weights, mutate_tokenizer, mutate_tokenizer],
]


def hostile_directory(seed: int, bases: list[Path], scratch: Path) -> tuple[Path, str]:
    """Make the directory of a seed, out of links to one of the bases, and say what was done to it."""
    rng = random.Random(seed)
    directory = scratch / f"model-{seed}"
    directory.mkdir()
    for file in rng.choice(bases).iterdir():
        (directory / file.name).symlink_to(file)
    done = [rng.choice(MUTATIONS) for _ in range(rng.choice([1, 1, 1, 2]))]
    for mutate in done:
        with suppress(OSError, RecursionError):  # of what was done before it
            mutate(rng, directory)
    return directory, " and ".join(mutate.__name__ for mutate in done)


# A process that tries many of them, and tells of each when it starts and when it is done.


def try_directory(path: Path) -> str:
    """Load and translate; tell how it ended: "translated", "refused: …", or what must not be."""
    import regard

    loaded = None
    try:
        loaded = regard.load(path)
        loaded.translate("The cat sees it.", to=loaded.languages[0] if loaded.languages else None)
    except RegardError as error:
        message = str(error)
        if "\n" in message or not 10 < len(message) < 10_000:
            return f"bad message of {len(message)} characters: {message[:300]!r}"
        if loaded is None and not (isinstance(error, ModelError) and str(path) in message):
            return f"a {type(error).__name__} that does not name the directory: {message}"
        return f"refused: {message}"
    except BaseException as error:  # what this looks for
        return f"{type(error).__name__}: {str(error)[:300]}"
    return "translated"


def peak_megabytes(start_again: bool = False) -> float:
    """The most memory that was in use since it was last started again."""
    if start_again:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def worker(first: int, last: int, scratch: Path, bases: list[Path]) -> None:
    import torch

    torch.set_num_threads(1)
    for seed in range(first, last):
        directory, what = hostile_directory(seed, bases, scratch)
        print(json.dumps({"seed": seed, "what": what}), flush=True)
        peak_megabytes(start_again=True)
        began = time.process_time()
        how = try_directory(directory)
        seconds, megabytes = time.process_time() - began, peak_megabytes()
        shutil.rmtree(directory)
        print(json.dumps({"seed": seed, "how": how, "seconds": seconds, "megabytes": megabytes}), flush=True)


# The one that watches.


@dataclass
class Tried:
    seed: int
    what: str
    how: str
    seconds: float = 0.0
    megabytes: float = 0.0

    @property
    def is_fine(self) -> bool:
        ended_well = self.how == "translated" or self.how.startswith("refused")
        return ended_well and self.seconds <= SECONDS and self.megabytes <= MEGABYTES


def try_many(first: int, count: int, scratch: Path, bases: list[Path]) -> Iterator[Tried]:
    """Try the directories of many seeds, in a process that is replaced when it dies or is stuck."""
    seed, last = first, first + count
    while seed < last:
        command = [sys.executable, "-m", "tests.system.test_hostile_models", "--worker", str(seed), str(last)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        process = subprocess.Popen(
            [*command, str(scratch), *map(str, bases)], stdout=subprocess.PIPE, cwd=_ROOT, env=environment
        )
        assert process.stdout is not None
        what = ""
        while select.select([process.stdout], [], [], _STUCK)[0] and (line := process.stdout.readline()):
            told = json.loads(line)
            seed = told["seed"]
            what = told.pop("what", what)
            if "how" in told:
                yield Tried(what=what, **told)
                seed += 1
        if seed < last:
            ended = process.poll()
            yield Tried(seed, what, "stuck" if ended is None else f"the process died of {ended}")
            seed += 1
        process.kill()
        process.wait()


def base_models(scratch: Path) -> list[Path]:
    """A tiny model with every file that a model can have, and the one in the package."""
    import numpy as np

    from regard.data.lexicon import Lexicon
    from regard.decoding.shortlist import Shortlist
    from tests.unit.models import small_model

    tiny = scratch / "tiny"
    model, tokenizer = small_model()
    model.save(tiny)
    tokenizer.save(tiny / "tokenizer.json")
    size = tokenizer.vocab_size
    shortlist = Shortlist({None: Lexicon(np.tile(np.arange(20), (size, 1)), np.arange(size // 2))})
    shortlist.save(tiny / "shortlist.safetensors")
    (tiny / "task.json").write_text('{"tasks": [{"kind": "translation"}]}')
    (tiny / "generation.json").write_text('{"beam": 2, "length_penalty": 1.0, "shortlist": true}')
    return [tiny, tiny, models.path_of("de-en")]


@pytest.mark.parametrize("count", [60, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_hostile_directory_is_refused_in_a_sentence_or_translates(tmp_path: Path, count: int) -> None:
    tried = list(try_many(0, count, tmp_path, base_models(tmp_path)))
    assert [one for one in tried if not one.is_fine] == []
    assert len(tried) == count
    assert {one.how.partition(":")[0] for one in tried} == {"translated", "refused"}


def report(count: int, first: int = 0) -> None:
    """Try many, and print those that are not fine and how the others ended."""
    ends: Counter[str] = Counter()
    slowest = largest = Tried(0, "", "")
    with tempfile.TemporaryDirectory() as name:
        for one in try_many(first, count, Path(name), base_models(Path(name))):
            ends[one.how.partition(":")[0]] += 1
            slowest = max(slowest, one, key=lambda tried: tried.seconds)
            largest = max(largest, one, key=lambda tried: tried.megabytes)
            if not one.is_fine:
                print(one, flush=True)
    print(f"{dict(ends)}\nslowest: {slowest}\nlargest: {largest}")


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), [Path(base) for base in sys.argv[5:]])
    else:
        report(*map(int, sys.argv[1:]))
