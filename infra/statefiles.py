"""Files that survive a crash: written to a temporary file, synced and renamed, and the folder synced."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FORMAT_VERSION = 1
_PROBE_BYTES = 1 << 20
_LINE_FILES_MOST = 256


class StateError(Exception):
    """The gateway cannot continue from a file on disk; the message says what to do."""


def sync_folder(folder: Path) -> None:
    """Make renames and removals in ``folder`` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its parents, durably, where they do not exist."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: after a crash there is the old content or the new, never a mixture.

    Raises:
        OSError: either content may be there after a crash; write again.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        # On a full disk the incomplete file would take space from everything else.
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def probe(folder: Path) -> None:
    """Check whether a megabyte can be written.

    Raises:
        OSError: it cannot.
    """
    write_atomically(folder / "probe", bytes(_PROBE_BYTES))
    (folder / "probe").unlink()


class LineFiles:
    """Appends lines to numbered files in a folder, and limits the folder's size.

    Args:
        folder: of the files.
        limits: the size at which a file is closed, and the total size above which the oldest is removed.
    """

    def __init__(self, folder: Path, limits: tuple[int, int]) -> None:
        self._folder = folder
        self._limits = limits
        # A new file for each gateway: the last line of the previous one may be torn.
        self._number = 1 + max((number for number, _ in numbered_files(folder)), default=0)

    def append(self, data: bytes, *, sync: bool = False) -> None:
        """Append whole lines; with ``sync`` they are on disk when this returns. Blocks.

        Raises:
            OSError: the disk fails.
        """
        file_bytes, all_bytes = self._limits
        make_folder(self._folder)
        path = self._folder / f"{self._number:08d}.jsonl"
        with path.open("ab") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
            if file.tell() >= file_bytes:
                self._number += 1
        if sync:
            sync_folder(self._folder)
        self._forget_oldest(all_bytes)

    def _forget_oldest(self, all_bytes: int) -> None:
        files = sorted(numbered_files(self._folder))
        sizes = [path.stat().st_size for _, path in files]
        while files[:-1] and (sum(sizes) > all_bytes or len(files) > _LINE_FILES_MOST):
            files.pop(0)[1].unlink()
            sizes.pop(0)


def numbered_files(folder: Path) -> Iterator[tuple[int, Path]]:
    """Return the files of lines in a folder with their numbers, in any order."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.suffix == ".jsonl" and path.stem.isdigit():
            yield int(path.stem), path


def queries_without_config(folder: Path, known: Collection[str]) -> list[Path]:
    """Return the folders below ``folder`` that hold the state of queries other than ``known``."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in found if path.is_dir() and path.name not in known]


@contextmanager
def owned(state_dir: Path) -> Iterator[None]:
    """Lock ``state_dir`` for one gateway; the lock ends with the process, however it dies.

    Raises:
        StateError: another gateway holds it, or another format version wrote it.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    with (state_dir / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateError(f"{state_dir} is in use by another gateway: stop it, or set another state_dir") from error
        _check_version(state_dir)
        yield


def _check_version(state_dir: Path) -> None:
    path = state_dir / "format"
    if not path.exists():
        write_atomically(path, f"{FORMAT_VERSION}\n".encode())
        return
    found = path.read_text().strip()
    if found != str(FORMAT_VERSION):
        raise StateError(
            f"{state_dir} has format {found}, this gateway reads {FORMAT_VERSION}: "
            "drain it with the version that wrote it, or set another state_dir"
        )
