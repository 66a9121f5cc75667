"""Downloads of published corpora: checksummed and written atomically."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.data.archives import Archive, unpacked
from regard.data.catalog import PublishedCorpus, PublishedFile
from regard.errors import DataError
from regard.files import directory_made, replaced_file, writing

_BLOCK = 2**16
Tell = Callable[[str], None]


def get_corpus(corpus: PublishedCorpus, out: Path, *, source: Path | None = None, tell: Tell) -> list[Path]:
    """Download or copy all files of a corpus; existing files with the right checksum are kept."""
    brought = []
    archives: dict[str, Archive] = {}
    for file in corpus.files:
        path = out / file.name
        if path.is_file() and _sum(_read(path)) == file.sha256:
            tell(f"{path} is there already")
        else:
            _bring(file, path, source, archives, tell)
        brought.append(path)
    return brought


def _bring(file: PublishedFile, path: Path, source: Path | None, archives: dict[str, Archive], tell: Tell) -> None:
    out = path.parent
    with directory_made(out):
        if source is not None:
            content = _from_disk(file, source, archives)
        else:
            content = _from_network(file, out, archives, tell)
        found = _sum(content)
        if found != file.sha256:
            origin = source or file.url
            raise DataError(
                f"{file.name} from {origin} is not the edition that was expected: "
                f"its sha256 is {found[:12]}…, not {file.sha256[:12]}…"
            )
        with replaced_file(path) as fresh:
            fresh.write_bytes(content)
    tell(f"{path}: {len(content) / 1e6:.1f} MB, checksum right")


def _from_disk(file: PublishedFile, source: Path, archives: dict[str, Archive]) -> bytes:
    for name in (file.name, f"{file.name}.gz"):
        if (source / name).exists():
            return unpacked(_read(source / name), str(source / name))
    if file.member is None or file.archive is None:
        raise DataError(f"{source} holds neither {file.name} nor {file.name}.gz")
    path = source / file.archive
    if not path.exists():
        raise DataError(f"{source} holds neither {file.name} nor {file.name}.gz nor {file.archive}")
    if file.archive not in archives:
        archives[file.archive] = Archive(_read(path), str(path))
    return archives[file.archive].member(file.member)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _from_network(file: PublishedFile, out: Path, archives: dict[str, Archive], tell: Tell) -> bytes:
    if file.url is None:
        raise DataError(f"{file.name} is not published by itself; take it from disk with --from DIR")
    if file.member is None:
        return unpacked(_downloaded(file.url, out / f".{file.name}.part", tell), file.url)
    if file.url not in archives:
        archives[file.url] = Archive(_downloaded(file.url, out / f".{file.archive}.part", tell), file.url)
    return archives[file.url].member(file.member)


def _downloaded(url: str, part: Path, tell: Tell) -> bytes:
    _download(url, part, tell)
    content = _read(part)
    with writing(part):
        part.unlink()  # before it is opened: what cannot be is to be downloaded anew
    return content


def _download(url: str, part: Path, tell: Tell) -> None:
    """Download to a file beside the place, going on behind what an earlier attempt has left there."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with _downloading(url):
        try:
            answer = urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as error:
            if error.code == 416 and have:  # nothing is left to send
                return
            raise
    with answer:
        resumed = have > 0 and answer.status == 206
        if resumed:
            tell(f"{url}: going on after {have / 1e6:.1f} MB")
        with writing(part), part.open("ab" if resumed else "wb") as file:
            file.writelines(_blocks(answer, url))


def _blocks(answer: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    """Return what a server sends, up to where the connection breaks off."""
    missing = answer.length or 0
    with _downloading(url):
        while block := answer.read(_BLOCK):
            missing -= len(block)
            yield block
        if missing > 0:
            raise http.client.IncompleteRead(b"", missing)


@contextmanager
def _downloading(url: str) -> Iterator[None]:
    """Use the network in this block; what fails is a `DataError` that names the address."""
    try:
        yield
    except urllib.error.HTTPError as error:
        raise DataError(f"{url} cannot be downloaded: the server answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:  # also of TLS, and of a connection that breaks off
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DataError(f"{url} cannot be downloaded: {reason}; run the same command to resume") from None


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
