"""The record of who ordered what: a line of the log and of ``state_dir/audit`` for each action of the API."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.views.why.linewriter import LineWriter
from infra.clock import Clock

_LOG = logging.getLogger(__name__)
FILE_BYTES: Final = 1_000_000
"""A file is closed once it has this size."""

AUDIT_BYTES: Final = 16_000_000
"""The oldest files are removed while the total size is larger than this."""

_REFUSALS_EACH_S: Final = 10.0


class Audit:
    """Notes each action, and those that were refused for want of the token, these at most once in 10 s.

    Args:
        folder: of the lines.
        clock: time.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._writer = LineWriter(folder, "audit lines", encode=msgspec.json.encode, limits=(FILE_BYTES, AUDIT_BYTES))
        self._clock = clock
        self._refused_s: float | None = None
        self._refusals = 0

    def acted(self, action: str, arguments: Mapping[str, Any], by: str, outcome: str) -> None:
        """Note an action.

        Args:
            action: method and path.
            arguments: what was sent with it.
            by: the address that it came from.
            outcome: ``done``, or why not.
        """
        self._note(action, arguments, by, outcome)

    def refused(self, action: str, by: str) -> None:
        """Note that an action had no token, or another one; a program that tries many does not fill the disk."""
        self._refusals += 1
        now_s = self._clock.now()
        if self._refused_s is not None and now_s - self._refused_s < _REFUSALS_EACH_S:
            return
        self._refused_s, refusals, self._refusals = now_s, self._refusals, 0
        self._note(action, {}, by, f"refused: no token, or another one ({refusals} since the last such line)")

    def _note(self, action: str, arguments: Mapping[str, Any], by: str, outcome: str) -> None:
        given = f" {dict(arguments)}" if arguments else ""
        _LOG.info("API: %s%s from %s: %s", action, given, by, outcome)
        at = datetime.fromtimestamp(self._clock.wall(), UTC).isoformat(timespec="milliseconds")
        self._writer.add({"at": at, "action": action, "arguments": dict(arguments), "from": by, "outcome": outcome})
        self._writer.write_soon()

    async def close(self) -> None:
        """Write the rest."""
        await self._writer.close()
