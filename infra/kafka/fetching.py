"""How consumers fetch records."""

from __future__ import annotations

from typing import Any, Final

REQUEST_TIMEOUT_MS: Final = 10_000
STOP_S: Final = 15.0
FETCHING: Final[dict[str, Any]] = {
    "auto_offset_reset": "none",
    "enable_auto_commit": False,
    "isolation_level": "read_committed",
    "fetch_max_bytes": 16 * 2**20,
    "max_partition_fetch_bytes": 2**20,
    "metadata_max_age_ms": 60_000,
    "request_timeout_ms": REQUEST_TIMEOUT_MS,
}
