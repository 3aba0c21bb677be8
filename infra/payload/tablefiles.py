"""The files of a static table as one packed version, named by its fingerprint."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
import zstandard

MAX_TABLE_BYTES: Final = 64 << 20
"""The files of all tables of a query may take this much."""
MAX_PACKED_BYTES: Final = MAX_TABLE_BYTES + (4 << 20)
"""With the names of the files; also when they cannot be compressed."""
_MOST_FILES: Final = 10_000
_LEVEL: Final = 6


class TableError(Exception):
    """The files of a table cannot be read, are too large, or are damaged."""


@dataclass(frozen=True)
class PackedTable:
    """One version of a table.

    Attributes:
        fingerprint: sha256 over its files and their names, in hexadecimal.
        packed: the files, compressed.
        raw_bytes: the length of what was compressed.
        file_bytes: the length of all files together.
    """

    fingerprint: str
    packed: bytes
    raw_bytes: int
    file_bytes: int


def pack(path: Path, most_bytes: int = MAX_TABLE_BYTES) -> PackedTable:
    """Read a file, or the files of a folder that Spark would read. Blocks.

    Args:
        path: a file or a folder.
        most_bytes: the files may take this much.

    Raises:
        TableError: there are no files, they cannot be read, or they are too large.
    """
    found: list[tuple[str, bytes]] = []
    left = most_bytes
    try:
        for name, file in _files(path):
            with file.open("rb") as stream:
                content = stream.read(left + 1)
            left -= len(content)
            if left < 0 or len(found) >= _MOST_FILES:
                raise TableError(
                    f"{path} is too large: the tables of a query may take {MAX_TABLE_BYTES >> 20} MiB in "
                    f"{_MOST_FILES} files; make them smaller, or let a stream deliver their rows"
                )
            found.append((name, content))
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error
    if not found:
        raise TableError(f"{path} has no files; write its rows there before the gateway starts")
    raw = msgspec.msgpack.encode(found)
    packed = zstandard.ZstdCompressor(level=_LEVEL).compress(raw)
    return PackedTable(hashlib.sha256(raw).hexdigest(), packed, len(raw), most_bytes - left)


def signature(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and time of change (ns) of each file: as long as they are the same, so is the content. Blocks.

    Raises:
        TableError: the files cannot be listed.
    """
    try:
        found = [(name, file.stat()) for name, file in _files(path)]
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or error}") from error
    return tuple((name, known.st_size, known.st_mtime_ns) for name, known in found)


def unpack(fingerprint: str, packed: bytes, raw_bytes: int, folder: Path) -> None:
    """Write a version's files into ``folder/<fingerprint>``, which appears complete or not at all. Blocks.

    Raises:
        TableError: it is damaged, or is not the version of this fingerprint.
        OSError: the disk fails.
    """
    raw = _unpacked(packed, raw_bytes)
    if hashlib.sha256(raw).hexdigest() != fingerprint:
        raise TableError(f"the table {fingerprint[:12]} arrived damaged")
    folder.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
    try:
        for name, content in msgspec.msgpack.decode(raw, type=list[tuple[str, bytes]]):
            inside = PurePosixPath(name)
            if inside.is_absolute() or ".." in inside.parts:
                raise TableError(f"the table {fingerprint[:12]} has a file outside its folder: {name}")
            file = new / inside
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        if not (folder / fingerprint).exists():
            new.rename(folder / fingerprint)
    except msgspec.DecodeError as error:
        raise TableError(f"the table {fingerprint[:12]} cannot be decoded: {error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _unpacked(packed: bytes, raw_bytes: int) -> bytes:
    try:
        if raw_bytes > MAX_PACKED_BYTES or zstandard.frame_content_size(packed) != raw_bytes:
            raise TableError(f"a table of {raw_bytes} bytes is not as long as announced, or too long")
        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=raw_bytes)
    except zstandard.ZstdError as error:
        raise TableError(f"a table cannot be decompressed: {error}") from error


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files in order of their names; Spark skips those that begin with an underscore or a dot."""
    if not path.is_dir():
        yield path.name, path
        return
    # Names as they are: a table may have folders like ``year=2026``.
    found = sorted(Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    for file in found:
        inside = file.relative_to(path)
        if not any(part.startswith((".", "_")) for part in inside.parts):
            yield inside.as_posix(), file
