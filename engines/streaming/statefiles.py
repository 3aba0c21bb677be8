"""A checkpoint as a list of files, so that it can be sent to another machine: most of them while the query still runs.

Spark writes a file of state once and does not change it. So what was sent ahead of a move stays valid, and only the
files of the last micro-batches remain to be sent while the query's events are held.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from engines.streaming import checkpoints
from engines.streaming.checkpoints import CheckpointError

FILES_MOST = 100_000
"""A checkpoint may have this many files: 200 partitions of 10 stores with 50 versions each."""
BYTES_MOST = 64 << 30
"""A checkpoint may take this many bytes."""
SLICE_BYTES = 1 << 20
"""A part of a file is at most this long."""
SLICES_BYTES_MOST = 16 << 20
"""At most this much is sent for one request."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


class StateFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a checkpoint.

    Attributes:
        path: its path within the checkpoint, with ``/``.
        size_bytes: its size.
        sha256: the fingerprint of its content, in hexadecimal digits.
    """

    path: str
    size_bytes: int
    sha256: str


class StateSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a file that is wanted: ``size_bytes`` from ``offset`` on."""

    file: StateFile
    offset: int
    size_bytes: int


def packed(wanted: Iterable[StateFile]) -> bytes:
    """Return a list of files for the link."""
    return msgspec.json.encode(list(wanted))


def unpacked(payload: bytes) -> list[StateFile]:
    """Return a list of files from the link.

    Raises:
        CheckpointError: it is no list of a checkpoint's files.
    """
    try:
        files = msgspec.json.decode(payload, type=list[StateFile])
    except msgspec.DecodeError as error:
        raise CheckpointError(f"no list of files: {error}") from error
    check_bounds(files)
    return files


class StateListing:
    """Lists the files of one start again and again; reads each file once.

    Args:
        start: the folder of the start.

    Attributes:
        start: the folder.
        listed: what was listed last.
    """

    def __init__(self, start: Path) -> None:
        self.start = start
        self._known: dict[str, tuple[tuple[int, int, int], StateFile]] = {}
        self.listed: tuple[StateFile, ...] = ()

    def files(self) -> tuple[StateFile, ...]:
        """Return what is committed now; a micro-batch may be running. Blocks.

        A batch that is planned but not committed is listed, too: it must run again with the same limits.

        Raises:
            CheckpointError: it has too many files or bytes.
        """
        paths = checkpoints.committed_files(self.start)
        found = [file for path in paths if (file := self._file(path)) is not None]
        check_bounds(found)
        self.listed = tuple(found)
        return self.listed

    def _file(self, path: str) -> StateFile | None:
        """Return a file; None if Spark has removed it since, because it belongs to an old version of the state."""
        file = self.start / path
        try:
            stat = file.stat()
            as_before = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            known = self._known.get(path)
            if known is None or known[0] != as_before:
                known = as_before, StateFile(path=path, size_bytes=stat.st_size, sha256=_fingerprint(file))
                self._known[path] = known
        except FileNotFoundError:
            self._known.pop(path, None)
            return None
        return known[1]


def check_bounds(files: Iterable[StateFile]) -> None:
    """Refuse a list of files that no checkpoint has.

    Raises:
        CheckpointError: it has too many files or bytes, a path twice, a path outside of the checkpoint, or a
            fingerprint that is none.
    """
    sizes: dict[str, int] = {}
    for file in files:
        if file.path in sizes:
            raise CheckpointError(f"{file.path} is listed twice")
        if not _is_inside(file.path) or file.size_bytes < 0 or not _SHA256.fullmatch(file.sha256):
            raise CheckpointError(
                f"{file.path!r} with {file.size_bytes} bytes and fingerprint {file.sha256!r} is no file of a checkpoint"
            )
        sizes[file.path] = file.size_bytes
    if len(sizes) > FILES_MOST or sum(sizes.values()) > BYTES_MOST:
        raise CheckpointError(
            f"the checkpoint has {len(sizes)} files with {sum(sizes.values())} bytes; at most {FILES_MOST} files with "
            f"{BYTES_MOST} bytes can be moved: run the query where it is, or with fewer spark.sql.shuffle.partitions"
        )


def _is_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and "\0" not in path and not path.startswith("/") and ".." not in parts


def _fingerprint(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class StateCopy:
    """The copy of a checkpoint that arrives file by file, on the machine where the query is to continue.

    What was received stays in a folder until the copy is complete, so that a later transfer sends only what is missing.

    Args:
        base: the folder of the query's starts on this machine.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self._received = base.parent / f"{base.name}.received"

    def missing(self, files: Iterable[StateFile]) -> list[StateFile]:
        """Return which of the files have not arrived yet, each content once; forget contents that are not listed.

        Raises:
            CheckpointError: see `check_bounds`.
        """
        files = tuple(files)
        check_bounds(files)
        self._received.mkdir(parents=True, exist_ok=True)
        here = {entry.name for entry in self._received.iterdir()}
        wanted = {file.sha256: file for file in files}
        for name in here - wanted.keys():
            (self._received / name).unlink()
        return [file for sha256, file in wanted.items() if sha256 not in here]

    def append(self, file: StateFile, offset: int, data: bytes) -> None:
        """Take the next part of a file that is `missing`; the last part makes it arrive.

        Raises:
            CheckpointError: it is not the next part, or the content is not what was announced.
        """
        part = self._received / f"{file.sha256}.part"
        size = part.stat().st_size if part.exists() and offset else 0
        if offset != size or offset + len(data) > file.size_bytes:
            raise CheckpointError(f"{file.path}: bytes {offset} to {offset + len(data)} came, but {size} are here")
        with part.open("ab" if offset else "wb") as stream:
            stream.write(data)
            if offset + len(data) < file.size_bytes:
                return
            stream.flush()
            os.fsync(stream.fileno())
        if _fingerprint(part) != file.sha256:
            part.unlink()
            raise CheckpointError(f"{file.path} arrived with a content that was not announced")
        part.rename(self._received / file.sha256)

    def install(self, files: Iterable[StateFile]) -> Path:
        """Make the copy the newest start of this machine; return its folder. The query must not be open here.

        What was received stays, so that a later copy needs only what has changed, until `clear`.

        Raises:
            CheckpointError: a file has not arrived.
        """
        files = tuple(files)
        check_bounds(files)
        checkpoints.make(self._base)
        copy = checkpoints.temporary(self._base, "arriving")
        copy.mkdir()
        for file in files:
            target = copy / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(self._received / file.sha256)
            except FileNotFoundError as error:
                shutil.rmtree(copy)
                raise CheckpointError(f"{file.path} has not arrived") from error
        return checkpoints.adopt(self._base, copy)

    def clear(self) -> None:
        """Remove what was received."""
        shutil.rmtree(self._received, ignore_errors=True)
