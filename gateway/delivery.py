"""From completions to the sink: order, parts, and the news of what is committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pyarrow as pa

from gateway.deadletters import DeadLetter, DeadLetterFile
from gateway.reorder import Release, Reorderer
from gateway.sinks.file import FileSink
from gateway.threads import run_to_end
from infra.clock import Clock

_LOG = logging.getLogger(__name__)
PART_S = 1.0
PART_BYTES = 64_000_000
# Results that wait, for an earlier run or for the disk, before no further run is routed.
HELD_BYTES_MAX = 64_000_000
_TICK_S = 0.1
_RETRY_MAX_S = 5.0


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a run (or of consecutive ones), what is measured at their release, and events that have none."""

    batch: pa.RecordBatch
    events: int
    arrival_s: float
    letters: tuple[DeadLetter, ...] = ()


class Delivery:
    """The receiver's second half for one query.

    Args:
        sink: opened.
        reorderer: knows what the sink has.
        dead_letters: where poison events go, before the run that they were in is committed.
        clock: time.
        on_release: called with each release as it goes out, and when.
        on_commit: awaited after each commit.
    """

    def __init__(
        self,
        sink: FileSink,
        reorderer: Reorderer[Results],
        dead_letters: DeadLetterFile,
        clock: Clock,
        *,
        on_release: Callable[[Release[Results], float], None],
        on_commit: Callable[[], Awaitable[None]],
    ) -> None:
        self._sink = sink
        self._reorderer = reorderer
        self._dead_letters = dead_letters
        self._clock = clock
        self._on_release = on_release
        self._on_commit = on_commit
        self._outbox: list[Release[Results]] = []
        self._outbox_bytes = 0
        self._writing: list[Release[Results]] = []
        self._held_bytes = 0
        self.healthy = True

    @property
    def next_seq(self) -> int:
        """The run that starts here is what all held results wait for."""
        return self._reorderer.next_seq

    @property
    def full(self) -> bool:
        """Whether so much waits that nothing but the missing run should be routed."""
        return self._held_bytes >= HELD_BYTES_MAX

    @property
    def empty(self) -> bool:
        """Whether everything that was completed is committed."""
        return not self._outbox and not self._writing and self._reorderer.held_count == 0

    @property
    def late_count(self) -> int:
        """Completions that were released after later ones, and marked so."""
        return self._reorderer.late_count

    def complete(self, first_seq: int, last_seq: int, results: Results) -> None:
        """Take results that are no duplicate."""
        self._held_bytes += results.batch.nbytes
        self._send_out(self._reorderer.complete(first_seq, last_seq, results, self._clock.now()))

    def _send_out(self, releases: list[Release[Results]]) -> None:
        now_s = self._clock.now()
        for release in releases:
            self._outbox.append(release)
            self._outbox_bytes += release.item.batch.nbytes
            self._on_release(release, now_s)

    async def run(self) -> None:
        """Commit a part each second or 64 MB, until cancelled; a full disk is tried again until it has room."""
        part_due_s = self._clock.now() + PART_S
        while True:
            await self._clock.sleep_until(self._clock.now() + _TICK_S)
            self._send_out(self._reorderer.flush(self._clock.now()))
            if self._outbox and (self._clock.now() >= part_due_s or self._outbox_bytes >= PART_BYTES):
                await self._commit()
                part_due_s = self._clock.now() + PART_S

    async def _commit(self) -> None:
        batch = self._writing = self._outbox
        self._outbox, self._outbox_bytes = [], 0
        try:
            await self._write_until_done(batch)
            self._held_bytes -= sum(release.item.batch.nbytes for release in batch)
            await self._on_commit()
        except asyncio.CancelledError:
            # The sink passes over what did get in, should this be written again.
            self._outbox = batch + self._outbox
            raise
        finally:
            self._writing = []

    async def _write_until_done(self, batch: list[Release[Results]]) -> None:
        wait_s = 2 * _TICK_S
        while True:
            try:
                await run_to_end(lambda: self._write(batch))
            except OSError as error:
                # Nothing was acknowledged, and the results are still here; the state is said once, not each time.
                if self.healthy:
                    _LOG.error("the sink takes nothing (%s): trying again until it does", error)
                self.healthy = False
                await self._clock.sleep_until(self._clock.now() + wait_s)
                wait_s = min(2 * wait_s, _RETRY_MAX_S)
            else:
                self.healthy = True
                return

    def _write(self, batch: list[Release[Results]]) -> None:
        self._dead_letters.add([letter for release in batch for letter in release.item.letters])
        self._sink.commit([Release(r.first_seq, r.last_seq, r.item.batch, r.late) for r in batch])

    async def close(self) -> None:
        """Commit what may go out, and close the sink; what it does not take now is done again after the next start."""
        try:
            await run_to_end(self._write_last)
        except OSError as error:
            _LOG.error("the sink did not take the last results (%s): they come after the next start", error)
        self._outbox = []

    def _write_last(self) -> None:
        if self._outbox:
            self._write(self._outbox)
        self._sink.close()
