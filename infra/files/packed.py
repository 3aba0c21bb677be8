"""Reads files as uncompressed bytes, whether they are compressed or not."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import zstandard

from infra.files.base import FilePlace

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_HEADER_MAX_BYTES = 18
_RLE_BLOCK = 1


def is_packed(path: FilePlace) -> bool:
    """Return whether a file is compressed: then nothing in it can be found without reading all before it."""
    return path.suffix in (".gz", ".zst")


def open_plain(path: FilePlace) -> BinaryIO:
    """Open ``path`` for reading its uncompressed bytes; ``.gz`` and ``.zst`` are decompressed, and must be here.

    Reading raises EOFError if a compressed file is truncated.
    """
    if path.suffix == ".gz":
        return cast("BinaryIO", gzip.open(str(path), "rb"))
    if path.suffix == ".zst":
        return cast("BinaryIO", io.BufferedReader(_Unpacked(Path(str(path)))))
    return path.open("rb")


class _Unpacked(io.RawIOBase):
    """A decompressed .zst file; its end is checked, because the library accepts a truncated frame."""

    def __init__(self, path: Path) -> None:
        self._path = path
        unpacked = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True)
        self._inner = cast("io.RawIOBase", unpacked)

    def readable(self) -> bool:
        return True

    def readinto(self, target: WriteableBuffer) -> int:
        count = self._inner.readinto(target) or 0
        if not count:
            with self._path.open("rb") as file:
                check_frames(file, self._path.stat().st_size)
        return count

    def close(self) -> None:
        self._inner.close()
        super().close()


def check_frames(file: BinaryIO, size_bytes: int) -> None:
    """Check the zstd frames in ``file`` (RFC 8878, section 3.1) without decompressing them.

    Raises:
        EOFError: the last one is truncated.
    """
    while (at := file.tell()) < size_bytes:
        head = file.read(_HEADER_MAX_BYTES)
        if len(head) >= 8 and int.from_bytes(head[:4], "little") in _SKIPPABLE:
            end = at + 8 + int.from_bytes(head[4:8], "little")
        elif head[:4] == _ZSTD_MAGIC and len(head) > 5:
            end = _end_of_blocks(file, at + zstandard.frame_header_size(head), size_bytes)
            end += 4 if head[4] & 4 else 0
        else:
            end = size_bytes + 1
        if end > size_bytes:
            raise EOFError("compressed file ended before the end of its last frame")
        file.seek(end)


def _end_of_blocks(file: BinaryIO, at: int, size_bytes: int) -> int:
    last = False
    while not last and at < size_bytes:
        file.seek(at)
        header = file.read(3)
        word = int.from_bytes(header, "little")
        last = bool(word & 1)
        at += 3 + (1 if (word >> 1) & 3 == _RLE_BLOCK else word >> 3)
        last = last and len(header) == 3
    return at if last else size_bytes + 1
