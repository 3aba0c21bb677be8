"""Follows sampled runs of the queries of a gateway, and sends their traces, off the event loop and within bounds."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from gateway.config.sites import TracesConfig
from gateway.core.traces.ids import TraceIds
from gateway.core.traces.spans import spans_of
from gateway.core.traces.stories import RunStory, Stories
from gateway.query.flow.dispatcher import RunEvent, RunInstruction, Watch
from gateway.views.traces.otlp import Collector, RunTrace
from infra.clock import Clock
from infra.threads import run_to_end
from infra.together import end_tasks

_LOG = logging.getLogger(__name__)
QUEUE_MOST: Final = 1024
_SEND_MOST: Final = 64
_SEND_WITHIN_S: Final = 5.0
_END_WITHIN_S: Final = 3.0
_Told = tuple[str, int | None, RunStory]


class TraceSink(Protocol):
    """Takes traces; ``Collector`` is one."""

    def send(self, traces: list[RunTrace]) -> bool:
        """Send traces, and return whether they were taken. Blocks."""
        ...

    def close(self) -> None:
        """Try no more."""
        ...


class Tracing:
    """The traces of one gateway.

    Args:
        config: None: no traces.
        clock: time.
        make: returns what takes the traces.
        seed: of the sample and of the ids; None: a random one.
        queue_most: so many stories wait for the collector; then the oldest are dropped.

    Attributes:
        counts: how many runs were exported or dropped, by that word.
    """

    def __init__(
        self,
        config: TracesConfig | None,
        clock: Clock,
        *,
        make: Callable[[str, float], TraceSink] = Collector,
        seed: bytes | None = None,
        queue_most: int = QUEUE_MOST,
    ) -> None:
        self._config = config
        self._clock = clock
        self._make = make
        self._ids = TraceIds(
            secrets.token_bytes(16) if seed is None else seed, 0.0 if config is None else config.sample
        )
        self._waiting: asyncio.Queue[_Told] = asyncio.Queue(queue_most)
        self._failing = False
        self.counts = {"exported": 0, "dropped": 0}

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send traces while the block lasts."""
        config = self._config
        if config is None:
            yield
            return
        sink = await run_to_end(lambda: self._make(config.endpoint, _SEND_WITHIN_S))
        task = asyncio.create_task(self._send_all(sink), name="send traces")
        try:
            yield
        finally:
            try:
                async with asyncio.timeout(_END_WITHIN_S):
                    await self._waiting.join()
            except TimeoutError:
                _LOG.warning("%d traces were not sent before the gateway ended", self._waiting.qsize())
            sink.close()
            await end_tasks(task)

    def watch(self, query: str, part: int | None) -> Watch | None:
        """Return what follows the runs of a query, or of one part of it; None without traces."""
        if self._config is None:
            return None
        stories = Stories(lambda first_seq: self._ids.is_sampled(query, first_seq))

        def watch(event: RunEvent, done: Sequence[RunInstruction], rtt_s: float | None) -> None:
            for story in stories.take(event, done, rtt_s):
                self._put((query, part, story))

        return watch

    def _put(self, told: _Told) -> None:
        if self._waiting.full():
            self._waiting.get_nowait()
            self._waiting.task_done()
            self._drop(1, f"{self._waiting.maxsize} of them wait for the collector already")
        self._waiting.put_nowait(told)

    def _drop(self, count: int, why: str) -> None:
        self.counts["dropped"] += count
        if not self._failing:
            self._failing = True
            _LOG.warning("traces are dropped: %s (spillway_traces_total counts them)", why)

    async def _send_all(self, sink: TraceSink) -> None:
        while True:
            told = [await self._waiting.get()]
            while not self._waiting.empty() and len(told) < _SEND_MOST:
                told.append(self._waiting.get_nowait())
            taken = await self._send(sink, told)
            for _ in told:
                self._waiting.task_done()
            if taken:
                self.counts["exported"] += len(told)
                if self._failing:
                    self._failing = False
                    _LOG.info("traces are sent again")
            else:
                self._drop(len(told), "the collector does not take them; check gateway.traces.endpoint")

    async def _send(self, sink: TraceSink, told: Sequence[_Told]) -> bool:
        ahead_s = self._clock.wall() - self._clock.now()
        try:
            return await run_to_end(lambda: sink.send([self._trace(*one, ahead_s) for one in told]))
        except Exception:
            _LOG.exception("traces could not be sent: a mistake of the gateway")
            return False

    def _trace(self, query: str, part: int | None, story: RunStory, ahead_s: float) -> RunTrace:
        about = {"spillway.query": query} | ({} if part is None else {"spillway.part": part})
        spans, first_seq = spans_of(story, about), story.first_seq
        return RunTrace(
            self._ids.trace_id(query, first_seq),
            tuple(self._ids.span_id(query, part, first_seq, index) for index in range(len(spans))),
            tuple(spans),
            ahead_s,
        )
