"""An exchange with hosts that the test controls; every invariant is checked after each event."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from gateway.core.exchange import Exchange, ExchangeSettings
from gateway.core.exchange import events as ev
from gateway.core.exchange import instructions as ins
from policies.failures.overdue import Patience

PATIENCE = Patience(least_s=10.0, times=8.0, unknown_s=120.0, silences=3.0)
CREDIT_BYTES = 1 << 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FakeRun:
    """A run without a batch."""

    first_seq: int
    last_seq: int
    arrival_s: float = 0.0
    disordered: bool = False

    @property
    def events(self) -> int:
        return self.last_seq - self.first_seq + 1


class Shell:
    """Carries out the exchange's instructions, on a clock that the test moves.

    A run has a payload of one byte an event. ``passes`` says how many of a run's rows are sent. ``slow`` lanes do not
    finish a send before the test does it. If ``packs`` is False, the test packs.
    """

    def __init__(self, *, committed: Iterable[tuple[int, int]] = (), flush_s: float | None = 30.0, **kw: Any) -> None:
        settings = ExchangeSettings(**{"patience": PATIENCE, "held_bytes_max": 1 << 20, "flush_s": flush_s, **kw})
        self.exchange: Exchange[FakeRun, str] = Exchange(settings, committed=committed)
        self.now_s = 0.0
        self.told: list[Any] = []
        self.sent: dict[str, list[tuple[int, int]]] = {}
        self.runs: dict[int, FakeRun] = {}
        self.slow: set[str] = set()
        self.empty: set[int] = set()
        self.packs = True
        self._attempts: dict[tuple[str, int], int] = {}

    def tell(self, kind: Any, **fields: Any) -> list[Any]:
        """Let the exchange handle an event now, carry out its instructions, and return them."""
        out: list[Any] = []
        events = deque([kind(at_s=self.now_s, **fields)])
        while events:
            wanted = self.exchange.handle(events.popleft())
            self.exchange.validate()
            out += wanted
            for instruction in wanted:
                events.extend(self._carry_out(instruction))
        self.told += out
        return out

    def _carry_out(self, instruction: Any) -> list[Any]:
        match instruction:
            case ins.Pack(lane, run, attempt):
                self._attempts[lane, run.first_seq] = attempt
                return self.packed_events(lane, run.first_seq) if self.packs else []
            case ins.Send(lane, first_seq):
                self.sent.setdefault(lane, []).append((first_seq, self._attempts[lane, first_seq]))
                return [] if lane in self.slow else [self._sent_event(lane, first_seq, 0.0)]
        return []

    def packed_events(self, lane: str, first_seq: int) -> list[Any]:
        run = self.runs[first_seq]
        rows = 0 if first_seq in self.empty else run.events
        packed = ev.Packed(
            at_s=self.now_s, lane=lane, first_seq=first_seq, raw_bytes=8 * run.events, payload_bytes=rows, rows=rows
        )
        if rows:
            return [packed]
        answer = ev.Answered(at_s=self.now_s, lane=lane, first_seq=first_seq, last_seq=run.last_seq, **nothing())
        return [packed, answer]

    def _sent_event(self, lane: str, first_seq: int, took_s: float) -> Any:
        return ev.Sent(at_s=self.now_s, lane=lane, first_seq=first_seq, took_s=took_s)

    # ------------------------------------------------------------------------------------------------ what happens

    def log(self, first: int, last: int, *, disordered: bool = False) -> list[Any]:
        self.runs[first] = run = FakeRun(first, last, self.now_s, disordered)
        return self.tell(ev.RunLogged, run=run)

    def log_tens(self, start: int, end: int) -> None:
        for first in range(start, end, 10):
            self.log(first, first + 9)

    def open(self, lane: str, credit_bytes: int = CREDIT_BYTES, **fields: Any) -> list[Any]:
        return self.tell(ev.LaneOpened, lane=lane, credit_bytes=credit_bytes, **fields)

    def lose(self, lane: str, reason: str = "", **fields: Any) -> list[Any]:
        return self.tell(ev.LaneLost, lane=lane, reason=reason, **fields)

    def share(self, **shares: float) -> list[Any]:
        return self.tell(ev.SharesSet, shares=shares)

    def packed(self, lane: str, first: int) -> list[Any]:
        (event,) = self.packed_events(lane, first)
        fields = {name: getattr(event, name) for name in ("raw_bytes", "payload_bytes", "rows")}
        return self.tell(ev.Packed, lane=lane, first_seq=first, **fields)

    def end_send(self, lane: str, first: int, took_s: float = 0.0) -> list[Any]:
        return self.tell(ev.Sent, lane=lane, first_seq=first, took_s=took_s)

    def answer(self, lane: str, first: int, last: int, **fields: Any) -> list[Any]:
        said = {"results": f"{lane} {first}-{last}", "result_bytes": last - first + 1, "batch_id": 1, "batch_s": 0.5}
        return self.tell(ev.Answered, lane=lane, first_seq=first, last_seq=last, **{**said, **fields})

    def isolate(self, lane: str, first: int) -> list[Any]:
        return self.tell(ev.Isolating, lane=lane, first_seq=first)

    def credit(self, lane: str, consumed_bytes: int) -> list[Any]:
        return self.tell(ev.Credited, lane=lane, consumed_bytes=consumed_bytes)

    def commit(self, *ranges: tuple[int, int]) -> list[Any]:
        return self.tell(ev.Committed, ranges=ranges)

    def tick(self, after_s: float = 0.0) -> list[Any]:
        self.now_s += after_s
        return self.tell(ev.Tick)

    # -------------------------------------------------------------------------------------------------- what was told

    def of(self, kind: type[T]) -> list[T]:
        return [each for each in self.told if isinstance(each, kind)]

    def released(self) -> list[tuple[int, int]]:
        return [(each.first_seq, each.last_seq) for each in self.of(ins.Release)]

    def open_in(self, lane: str) -> int:
        return self.exchange.lane(lane).open_runs


def nothing() -> dict[str, Any]:
    return {"results": "", "result_bytes": 0, "batch_id": -1, "batch_s": 0.0}


def of(kind: type[T], told: Iterable[Any]) -> list[T]:
    return [each for each in told if isinstance(each, kind)]
