"""An exchange with one lane, for tests of the lane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import gateway.core.exchange.events as told
from gateway.core.exchange import Exchange, ExchangeSettings, LaneView
from gateway.core.exchange.instructions import Dispatched, Pack, Send
from gateway.query.flow.lane import Answer, Lane, LaneEvent
from gateway.query.flow.run import Run
from policies.failures.overdue import Patience
from tests.support.gateway_doubles import FakeHost, ManualClock, events

SETTINGS = ExchangeSettings(patience=Patience(), flush_s=None, held_bytes_max=1 << 20)


class Owner:
    """An exchange with one lane, and the events that it receives."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.orders: list[Pack[Run] | Send] = []
        self.sent: list[tuple[int, int, int]] = []
        self.failed: list[tuple[str, str]] = []
        self.broken: list[str] = []
        self.exhausted: list[str] = []
        self._exchange: Exchange[Run, Answer] = Exchange(SETTINGS)
        self._lane: Lane

    def open(self, lane: Lane) -> None:
        self._lane = lane
        self._handle(told.SharesSet(at_s=0.0, shares={"home": 0.0, lane.name: 1.0}))
        self._handle(told.LaneOpened(at_s=0.0, lane=lane.name, credit_bytes=lane.credit_bytes))

    def put(self, first: int, last: int) -> None:
        batch = events(first, last)
        self._handle(told.RunLogged(at_s=0.0, run=Run(first, last, batch, 0.0, batch.nbytes)))

    @property
    def open_runs(self) -> int:
        return self._exchange.lane(self._lane.name).open_runs

    def _handle(self, event: told.ExchangeEvent[Run, Answer]) -> None:
        for what in self._exchange.handle(event):
            match what:
                case Pack() | Send():
                    self.orders.append(what)
                    self._lane.order(what)
                case Dispatched():
                    self.sent.append((what.run.first_seq, what.raw_bytes, what.sent_bytes))

    def on_event(self, event: LaneEvent) -> None:
        self._handle(event)

    def view(self, lane: str) -> LaneView | None:
        return self._exchange.lane(lane)

    def asked(self, lane: str, first_seq: int, last_seq: int) -> Sequence[Run]:
        return self._exchange.asked(lane, first_seq, last_seq)

    def on_answer(self, answer: Answer) -> None:
        first, last = answer.first_seq, answer.last_seq
        rest = {"results": answer, "result_bytes": 0, "batch_id": answer.batch_id, "batch_s": answer.batch_s}
        self._handle(told.Answered(at_s=0.0, lane=answer.lane, first_seq=first, last_seq=last, **rest))  # type: ignore[arg-type]
        self.answers.append(answer)

    def on_broken(self, reason: str, exhausted: bool) -> None:
        (self.exhausted if exhausted else self.broken).append(reason)

    def on_failed(self, lane: str, reason: str) -> None:
        self.failed.append((lane, reason))


@asynccontextmanager
async def running(host: FakeHost, owner: Owner) -> AsyncIterator[Lane]:
    lane = host.lane(owner, ManualClock())
    sender = asyncio.create_task(lane.run())
    owner.open(lane)
    try:
        yield lane
    finally:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
        await host.connection.close("test over")
