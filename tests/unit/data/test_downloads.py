"""Against a server on this machine that breaks off, lies and goes away."""

import gzip
import hashlib
import io
import ssl
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from regard.data.catalog import CATALOG, PublishedCorpus, PublishedFile, published
from regard.data.downloads import get_corpus
from regard.errors import DataError, InputError, WriteError
from tests.unit.data.shared import shared

TEXT = "".join(f"line {number}\n" for number in range(20_000)).encode()
SUM = hashlib.sha256(TEXT).hexdigest()


class Server(ThreadingHTTPServer):
    content = TEXT
    breaks = 0
    """How many answers break off half-way."""
    ranges = True
    asked: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        content, start = self.server.content, 0
        if asked is not None and self.server.ranges:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
        else:
            self.send_response(200 if self.path != "/none" else 404)
        body = content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.breaks > 0:
            self.server.breaks -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def corpus(server: Server, *, sha256: str = SUM, path: str = "text", member: str | None = None) -> PublishedCorpus:
    url = f"http://127.0.0.1:{server.server_address[1]}/{path}"
    return PublishedCorpus("toy", "A toy.", "None.", (PublishedFile("text.txt", sha256, url, member),))


def quiet(_: str) -> None: ...


def test_a_broken_download_is_gone_on_with(server: Server, tmp_path: Path) -> None:
    server.breaks = 2
    for _ in range(2):
        with pytest.raises(DataError, match="run the same command to resume"):
            get_corpus(corpus(server), tmp_path, tell=quiet)
        assert not (tmp_path / "text.txt").exists()
    said: list[str] = []
    (path,) = get_corpus(corpus(server), tmp_path, tell=said.append)
    assert path.read_bytes() == TEXT
    assert [asked is None for asked in server.asked] == [True, False, False]
    assert "going on after" in said[0]
    assert [file.name for file in tmp_path.iterdir()] == ["text.txt"]
    get_corpus(corpus(server), tmp_path, tell=quiet)
    assert len(server.asked) == 3, "what is there and right is not asked for again"


def test_a_server_that_knows_no_ranges_starts_over(server: Server, tmp_path: Path) -> None:
    server.breaks, server.ranges = 1, False
    with pytest.raises(DataError):
        get_corpus(corpus(server), tmp_path, tell=quiet)
    (path,) = get_corpus(corpus(server), tmp_path, tell=quiet)
    assert path.read_bytes() == TEXT


def test_another_edition_is_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not the edition that was expected: its sha256 is .*…, not 000000000000…"):
        get_corpus(corpus(server, sha256="0" * 64), tmp_path, tell=quiet)
    assert not (tmp_path / "text.txt").exists()


def test_what_cannot_be_reached_is_said(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the server answers 404"):
        get_corpus(corpus(server, path="none"), tmp_path, tell=quiet)
    nowhere = PublishedFile("text.txt", SUM, "http://127.0.0.1:9/none")
    with pytest.raises(DataError, match="cannot be downloaded"):
        get_corpus(PublishedCorpus("toy", "", "", (nowhere,)), tmp_path, tell=quiet)
    unpublished = PublishedCorpus("toy", "", "", (PublishedFile("text.txt", SUM),))
    with pytest.raises(DataError, match="take it from disk with --from"):
        get_corpus(unpublished, tmp_path, tell=quiet)


def test_archives_are_opened(server: Server, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inner.txt", TEXT)
    server.content = packed.getvalue()
    (path,) = get_corpus(corpus(server, member="inner.txt"), tmp_path / "a", tell=quiet)
    assert path.read_bytes() == TEXT
    with pytest.raises(DataError, match="cannot be unpacked"):
        get_corpus(corpus(server, member="other.txt"), tmp_path / "b", tell=quiet)
    with pytest.raises(DataError, match=r"cannot be unpacked: it has no member 'other.txt'"):
        get_corpus(corpus(server, member="other.txt"), tmp_path / "b", tell=quiet)
    server.content = b"no archive" * 100
    with pytest.raises(DataError, match="cannot be unpacked"):
        get_corpus(corpus(server, member="inner.txt"), tmp_path / "b", tell=quiet)
    server.content = gzip.compress(TEXT)
    (path,) = get_corpus(corpus(server), tmp_path / "c", tell=quiet)
    assert path.read_bytes() == TEXT


def test_from_disk(server: Server, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "text.txt.gz").write_bytes(gzip.compress(TEXT))
    (path,) = get_corpus(corpus(server), tmp_path / "out", source=tmp_path / "in", tell=quiet)
    assert path.read_bytes() == TEXT
    assert not server.asked
    with pytest.raises(DataError, match=r"holds neither text\.txt nor"):
        get_corpus(corpus(server), tmp_path / "other", source=tmp_path, tell=quiet)


def test_a_file_that_cannot_be_read_is_named_itself(server: Server, tmp_path: Path) -> None:
    (tmp_path / "in" / "text.txt").mkdir(parents=True)
    with pytest.raises(DataError, match=rf"^{tmp_path}/in/text\.txt cannot be read: Is a directory$"):
        get_corpus(corpus(server), tmp_path / "out", source=tmp_path / "in", tell=quiet)
    assert not (tmp_path / "out").exists()


def test_a_download_that_cannot_be_written_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".text.txt.part").mkdir()
    with pytest.raises(WriteError, match=rf"^{tmp_path}/\.text\.txt\.part cannot be written: Is a directory$"):
        get_corpus(corpus(server), tmp_path, tell=quiet)


def test_an_error_of_tls_in_the_middle_of_a_download_can_be_resumed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = HTTPResponse.read

    def failing(self: HTTPResponse, amount: int | None = None) -> bytes:
        if (self.length or 0) < len(TEXT) // 2:
            raise ssl.SSLError(1, "bad record mac")
        return read(self, amount)

    with monkeypatch.context() as patch:
        patch.setattr(HTTPResponse, "read", failing)
        with pytest.raises(DataError, match="cannot be downloaded: .*bad record mac.*; run the same command to resume"):
            get_corpus(corpus(server), tmp_path, tell=quiet)
    (path,) = get_corpus(corpus(server), tmp_path, tell=quiet)
    assert path.read_bytes() == TEXT
    assert server.asked[-1] is not None


def test_an_archive_is_fetched_once_for_all_of_its_members(server: Server, tmp_path: Path) -> None:
    """From the network, and from disk; its members may be in a directory of their own."""
    contents = {f"{number}.txt": TEXT + str(number).encode() for number in range(3)}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"all/en/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    server.content = packed.getvalue()
    url = f"http://127.0.0.1:{server.server_address[1]}/texts.tar.gz"
    files = [
        PublishedFile(name, hashlib.sha256(content).hexdigest(), url, f"en/{name}")
        for name, content in contents.items()
    ]
    many = PublishedCorpus("toy", "A toy.", "None.", tuple(files))
    server.breaks = 1
    with pytest.raises(DataError, match="run the same command to resume"):
        get_corpus(many, tmp_path / "out", tell=quiet)
    paths = get_corpus(many, tmp_path / "out", tell=quiet)
    assert [path.read_bytes() for path in paths] == list(contents.values())
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == sorted(contents)
    assert len(server.asked) == 2

    (tmp_path / "in").mkdir()
    with pytest.raises(DataError, match=r"holds neither 0.txt nor 0.txt.gz nor texts.tar.gz"):
        get_corpus(many, tmp_path / "copy", source=tmp_path / "in", tell=quiet)
    (tmp_path / "in" / "texts.tar.gz").write_bytes(server.content)
    paths = get_corpus(many, tmp_path / "copy", source=tmp_path / "in", tell=quiet)
    assert [path.read_bytes() for path in paths] == list(contents.values())
    assert len(server.asked) == 2


@pytest.mark.parametrize("name", ["acl-titles", "babi", "java-csharp", "software-de-en", "synopsis", "xquad"])
def test_the_shared_corpora_are_the_editions_of_the_catalogue(tmp_path: Path, name: str) -> None:
    source = shared(name)
    paths = get_corpus(published(name), tmp_path, source=source, tell=quiet)
    assert len(paths) == len(published(name).files)


def test_the_catalogue() -> None:
    assert {"multi30k", "tatoeba-de-en"} <= {entry.name for entry in CATALOG}
    assert all(entry.license for entry in CATALOG)
    with pytest.raises(InputError, match="'multi' is not known; there are multi30k"):
        published("multi")
