"""Whether a file is still the one that was listed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

_LITTLE_BYTES: Final = 4 << 10


def ends_digest(path: Path) -> str:
    """Return the hash of the first and last bytes of a file: enough for one of many complete files. Blocks.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        digest = hashlib.sha256(size_bytes.to_bytes(8, "big"))
        digest.update(file.read(_LITTLE_BYTES))
        file.seek(max(0, size_bytes - _LITTLE_BYTES))
        digest.update(file.read(_LITTLE_BYTES))
    return digest.hexdigest()


def difference(path: Path, size_bytes: int, changed_ns: int, digest: str) -> str:
    """Return how a file differs from the listed one; empty if it does not. Blocks.

    Args:
        path: of the file.
        size_bytes: when it was listed; -1 if that is unknown.
        changed_ns: when it had been changed last, since 1970.
        digest: of its ends; empty if that is unknown.

    Raises:
        OSError: it cannot be read.
    """
    found = path.stat()
    if size_bytes not in (-1, found.st_size):
        return f"had {size_bytes} bytes when it was listed and has {found.st_size} now"
    if digest and found.st_mtime_ns != changed_ns and ends_digest(path) != digest:
        return "has other content than when it was taken"
    return ""
