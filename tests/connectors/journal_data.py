"""Journals for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.connectors.position import Position
from gateway.journal.journal import Journal
from gateway.journal.replica import Replica
from infra.clock import Clock, SystemClock

LIMIT_BYTES = 1 << 20
HUGE = 1 << 40


@asynccontextmanager
async def opened(
    folder: Path,
    *,
    limit_bytes: int = LIMIT_BYTES,
    segment_bytes: int = LIMIT_BYTES,
    clock: Clock | None = None,
    remember_keys_s: float = 0.0,
    probe_s: float = 1.0,
    replica: Replica | None = None,
) -> AsyncIterator[Journal]:
    """An opened journal."""
    journal = Journal(
        folder,
        limit_bytes=limit_bytes,
        segment_bytes=segment_bytes,
        clock=clock or SystemClock(),
        remember_keys_s=remember_keys_s,
        probe_s=probe_s,
        replica=replica,
    )
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


async def everything(journal: Journal, position: Position | None = None, *, at_once: int = 1000) -> list[bytes]:
    """All records from a position on."""
    position = position or Position(journal.first_record)
    found: list[bytes] = []
    while (records := await journal.read(position, at_once, HUGE)) is not None:
        found += records.records
        position = records.end
    return found


class SetClock(SystemClock):
    """A clock whose wall time the test sets."""

    def __init__(self, wall_s: float = 1_800_000_000.0) -> None:
        self.wall_s = wall_s

    def wall(self) -> float:
        return self.wall_s
