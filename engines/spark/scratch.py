"""Folders that live as long as this process, in memory if there is a memory file system."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

_MEMORY = Path("/dev/shm")  # noqa: S108 - made private by mkdtemp
_PREFIX = "spillway-host-"
_LOCK = "lock"


def scratch_folder(purpose: str) -> Path:
    """Make a private folder below this process's own."""
    root, _ = _own()
    return Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=root))


def sweep() -> None:
    """Remove the folders of processes that were killed; they hold no lock any more."""
    for parent in {_parent(), Path(tempfile.gettempdir())}:
        for folder in parent.glob(f"{_PREFIX}*"):
            if not _is_in_use(folder):
                shutil.rmtree(folder, ignore_errors=True)


def remove_own() -> None:
    """Remove this process's folder and all in it."""
    root, lock = _own()
    shutil.rmtree(root, ignore_errors=True)
    lock.close()
    _own.cache_clear()


@functools.cache
def _own() -> tuple[Path, IO[bytes]]:
    root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_parent()))
    # A process number is not enough: another process may have it, also one in another container.
    lock = (root / f"new-{_LOCK}").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    Path(lock.name).rename(root / _LOCK)  # from now on `sweep` of another process sees it
    return root, lock


def _is_in_use(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked, another user's, or so new that it has no lock yet
        return True
    return False


def _parent() -> Path:
    return _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
