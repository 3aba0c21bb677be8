"""Produces the demo's mails into a topic at the times at which they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.demo.kafka.mails import PARTITIONS, MailRecords
from infra.clock import SystemClock
from infra.kafka.topics import LoadTopics, TimedRecord, TopicWriter

_LOOK_S: Final = 0.02
_AT_ONCE: Final = 2_000
_LEAD_S: Final = 0.5


class MailFeed:
    """Produces mails; the time of each record is when it was due, however late it is written.

    Args:
        topics: of the broker.
        topic: of the mails, with ``PARTITIONS`` partitions and nothing in it.
        records: the mails.
        due_s: when each is due, in seconds after ``begins_s``, ascending.
        first: so many mails come before these, by ``produce_first``: an engine starts its streams with them.

    Attributes:
        begins_s: when the first one is due, in seconds since 1970; set once it runs.
        first: likewise.
    """

    def __init__(
        self, topics: LoadTopics, topic: str, records: MailRecords, due_s: NDArray[np.float64], first: int = 0
    ) -> None:
        self._topics, self._topic, self._records, self._due_s, self.first = topics, topic, records, due_s, first
        self.begins_s = 0.0

    @property
    def events(self) -> int:
        """How many mails it produces."""
        return self.first + len(self._due_s)

    async def produce_first(self) -> None:
        """Produce the mails that come before those with a time; they are due now."""
        async with self._topics.writer(self._topic) as writer:
            await self._write(writer, 0, np.full(self.first, SystemClock().wall()))

    @contextmanager
    def running(self) -> Iterator[Future[None]]:
        """Produce the others in a thread; the result says when all are written, or why they are not."""
        with ThreadPoolExecutor(1, "feed") as pool:
            stop = Event()
            try:
                yield pool.submit(lambda: asyncio.run(self._run(stop)))
            finally:
                stop.set()

    async def _run(self, stop: Event) -> None:
        clock, written = SystemClock(), 0
        async with self._topics.writer(self._topic) as writer:
            begins_s = clock.now() + _LEAD_S
            self.begins_s = clock.wall() + _LEAD_S
            while written < len(self._due_s) and not stop.is_set():
                due = int(np.searchsorted(self._due_s, clock.now() - begins_s, side="right"))
                end = min(due, written + _AT_ONCE)
                if end > written:
                    await self._write(writer, self.first + written, self.begins_s + self._due_s[written:end])
                    written = end
                else:
                    await clock.sleep_until(clock.now() + _LOOK_S)

    async def _write(self, writer: TopicWriter, number: int, at_s: NDArray[np.float64]) -> None:
        """Write mails from a number on, due at these times."""
        times_ms = np.rint(1e3 * at_s).astype(int).tolist()
        await writer.write(
            [
                TimedRecord(each % PARTITIONS, at_ms, self._records.value(each))
                for each, at_ms in enumerate(times_ms, start=number)
            ]
        )
