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
from infra.kafka.topics import Timed, Topics, TopicWriter

_LOOK_S: Final = 0.02
_AT_ONCE: Final = 2_000
_LEAD_S: Final = 0.5


class Feed:
    """Produces mails; the time of each record is when it was due, however late it is written.

    Args:
        topics: of the broker.
        topic: of the mails, with ``PARTITIONS`` partitions and nothing in it.
        records: the mails.
        due_s: when each is due, in seconds after ``begins_s``, ascending.

    Attributes:
        begins_s: when the first one is due, in seconds since 1970; set once it runs.
        written: how many are written.
    """

    def __init__(self, topics: Topics, topic: str, records: MailRecords, due_s: NDArray[np.float64]) -> None:
        self._topics, self._topic, self._records, self.due_s = topics, topic, records, due_s
        self.begins_s = 0.0
        self.written = 0

    @contextmanager
    def running(self) -> Iterator[Future[None]]:
        """Produce in a thread; the result says when all is written, or why it is not."""
        with ThreadPoolExecutor(1, "feed") as pool:
            stop = Event()
            try:
                yield pool.submit(lambda: asyncio.run(self._run(stop)))
            finally:
                stop.set()

    async def _run(self, stop: Event) -> None:
        clock = SystemClock()
        async with self._topics.writer(self._topic) as writer:
            begins_s = clock.now() + _LEAD_S
            self.begins_s = clock.wall() + _LEAD_S
            while self.written < len(self.due_s) and not stop.is_set():
                due = int(np.searchsorted(self.due_s, clock.now() - begins_s, side="right"))
                if due > self.written:
                    await self._write(writer, min(due, self.written + _AT_ONCE))
                else:
                    await clock.sleep_until(clock.now() + _LOOK_S)

    async def _write(self, writer: TopicWriter, end: int) -> None:
        numbers = range(self.written, end)
        times_ms = np.rint(1e3 * (self.begins_s + self.due_s[self.written : end])).astype(int).tolist()
        await writer.write(
            [
                Timed(number % PARTITIONS, at_ms, self._records.value(number))
                for number, at_ms in zip(numbers, times_ms, strict=True)
            ]
        )
        self.written = end
