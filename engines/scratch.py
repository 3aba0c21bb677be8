"""Folders that live as long as this process, in memory where there is a memory file system."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

_MEMORY = Path("/dev/shm")  # noqa: S108 - made private by mkdtemp
_PREFIX = "spillway"


def scratch_folder(purpose: str) -> Path:
    """Make a private folder; its name tells whose it is, so that `sweep` can find it after a kill."""
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{os.getpid()}-{purpose}-", dir=parent))


def sweep() -> None:
    """Remove the folders of processes that are no more."""
    for parent in {_MEMORY, Path(tempfile.gettempdir())}:
        for folder in parent.glob(f"{_PREFIX}-[0-9]*-*"):
            pid = int(folder.name.split("-")[1])
            if not psutil.pid_exists(pid):
                shutil.rmtree(folder, ignore_errors=True)
