"""Small files that only their owner may read, written atomically."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write or replace ``path`` (mode 0600) durably."""
    temporary = _write_temporary(path.parent, content)
    temporary.replace(path)
    sync_directory(path.parent)


def create_private(path: Path, content: bytes) -> bytes:
    """Write ``path`` (mode 0600) durably unless it exists; return what it holds now.

    If two processes do this at once, both get the content of the first.
    """
    temporary = _write_temporary(path.parent, content)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return path.read_bytes()
    finally:
        temporary.unlink()
    sync_directory(path.parent)
    return content


def _write_temporary(directory: Path, content: bytes) -> Path:
    descriptor, name = tempfile.mkstemp(dir=directory, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        Path(name).unlink()
        raise
    return Path(name)


def sync_directory(directory: Path) -> None:
    """Make renames in ``directory`` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
