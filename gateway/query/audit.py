"""The audit log: which fields of a query may leave for which machine, and in which form, as JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from infra.statefiles import LineFiles

FILE_BYTES: Final = 4_000_000
"""A file is closed once it has this size."""
LOG_BYTES: Final = 64_000_000
"""The oldest files are removed while the total size is larger than this."""


class AuditLog:
    """Writes a line each time that a query is opened on a VM, before the first event leaves.

    Args:
        folder: of the log.
        file_bytes: a file is closed at this size.
        log_bytes: above this total size the oldest file is removed.
    """

    def __init__(self, folder: Path, file_bytes: int = FILE_BYTES, log_bytes: int = LOG_BYTES) -> None:
        self._files = LineFiles(folder, (file_bytes, log_bytes))

    def note(self, wall_s: float, query: str, vm: str, epoch: int, forms: Mapping[str, str]) -> None:
        """Append a line, durably. Blocks.

        Args:
            wall_s: the time, in seconds since 1970.
            query: the query.
            vm: the VM that may get its events from now on.
            epoch: of the query on the VM.
            forms: of each field that is sent; no other field leaves.

        Raises:
            OSError: the disk fails.
        """
        at = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds")
        line = {"at": at, "query": query, "vm": vm, "epoch": epoch, "fields": dict(forms)}
        self._files.append(msgspec.json.encode(line) + b"\n", sync=True)
