"""Archives in memory: zip, and tar with or without gzip."""

import gzip
import io
import tarfile
import zipfile
import zlib

from regard.errors import DataError


def unpacked(content: bytes, origin: str) -> bytes:
    """Return the content of a file, unpacked where it is gzip."""
    try:
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{origin} cannot be unpacked: {error}") from None


class Archive:
    """An archive that is opened once for all of its members."""

    def __init__(self, content: bytes, origin: str) -> None:
        self._origin = origin
        file = io.BytesIO(unpacked(content, origin))
        try:
            is_zip = zipfile.is_zipfile(file)
            file.seek(0)
            self._archive = zipfile.ZipFile(file) if is_zip else tarfile.TarFile(fileobj=file)
        except (zipfile.BadZipFile, tarfile.TarError) as error:
            raise DataError(f"{origin} cannot be unpacked: {error}") from None

    def member(self, name: str) -> bytes:
        """Return the content of a member, which may be in a directory that the archive wraps around all of them."""
        archive = self._archive
        names = archive.namelist() if isinstance(archive, zipfile.ZipFile) else archive.getnames()
        found = next((entry for entry in names if entry == name or entry.endswith(f"/{name}")), None)
        if found is None:
            raise DataError(f"{self._origin} cannot be unpacked: it has no member {name!r}")
        try:
            if isinstance(archive, zipfile.ZipFile):
                return archive.read(found)
            file = archive.extractfile(found)
            return b"" if file is None else file.read()
        except (zipfile.BadZipFile, tarfile.TarError, KeyError, OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self._origin} cannot be unpacked: {error}") from None
