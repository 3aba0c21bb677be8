"""What must be true of an exchange's instructions, independent of how the exchange finds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gateway.core.exchange import instructions as ins
from policies.signals import HOME
from tests.core.exchange.exchange_shell import FakeRun


@dataclass
class Host:
    """One lane while it is open: the shell's current work for it, the runs at its host, and its credit."""

    credit_bytes: int
    in_flight_bytes: int = 0
    doing: tuple[str, int] | None = None
    payload_bytes: int = 0
    sent_s: dict[int, float] = field(default_factory=dict)
    aside: set[int] = field(default_factory=set)
    packed: list[int] = field(default_factory=list)
    given_up: bool = False

    @property
    def left_bytes(self) -> int:
        return self.credit_bytes - self.in_flight_bytes


class Order:
    """The naive way to put answers in order: look at all of them each time."""

    def __init__(self, ordered: bool, flush_s: float | None, before: set[int]) -> None:
        self.ordered = ordered
        self.flush_s = flush_s
        self.out = set(before)
        self.start = 0
        self.held: dict[int, tuple[int, float]] = {}

    def due(self, now_s: float, *, ticks: bool) -> list[tuple[int, int, bool]]:
        """Remove and return, in order, the results that may be released now: (first, last, late)."""
        released: list[tuple[int, int, bool]] = []
        while self.held:
            while self.start in self.out:
                self.start += 1
            lowest = min(self.held)
            waited_long = ticks and self.flush_s is not None and self._oldest_s() + self.flush_s <= now_s
            if self.ordered and lowest > self.start and not waited_long:
                break
            last, _ = self.held.pop(lowest)
            released.append((lowest, last, self.ordered and any(seq > last for seq in self.out)))
            self.out.update(range(lowest, last + 1))
            self.start = max(self.start, lowest) if self.ordered else self.start
        return released

    def _oldest_s(self) -> float:
        return min(since_s for _, since_s in self.held.values())


class Oracle:
    """Follows the exchange's instructions. It knows no room, queues or shares, only what must never happen."""

    def __init__(self, *, ordered: bool, flush_s: float | None, home_only: bool, before: set[int]) -> None:
        self.home_only = home_only
        self.order = Order(ordered, flush_s, before)
        self.before = before
        self.runs: dict[int, FakeRun] = {}
        self.done: dict[int, str] = {}
        self.attempts: dict[int, int] = {}
        self.hosts: dict[str, Host] = {}
        self.uncommitted: set[tuple[int, int]] = set()
        self.undone: set[int] = set()
        self.where: dict[int, str] = {}

    def follow(self, now_s: float, told: list[Any], *, ticks: bool) -> None:
        releases: list[tuple[int, int, bool]] = []
        for each in told:
            match each:
                case ins.Pack(lane, run, attempt):
                    self._pack(lane, run, attempt)
                case ins.Dispatched(lane, run):
                    assert run.first_seq in self.undone
                case ins.Send(lane, first):
                    self._send(lane, first)
                case ins.Done():
                    self._done(each)
                case ins.Release():
                    releases.append((each.first_seq, each.last_seq, each.late))
                    assert each.results == self.done[each.first_seq]
                    assert each.events == each.last_seq - each.first_seq + 1
                    self.uncommitted.add((each.first_seq, each.last_seq))
                case ins.FailLane(lane):
                    assert not self.hosts[lane].given_up
                    self.hosts[lane].given_up = True
                case ins.AskedAgain(lane, first):
                    host = self.hosts[lane]
                    assert not self.home_only
                    assert now_s - host.sent_s[first] > 10.0
                    assert first not in host.aside
                    assert first in self.undone
                    assert self.where.pop(first) == lane
                case ins.RunRecalled(lane, first, in_lane_s, pause_s):
                    host = self.hosts[lane]
                    assert not self.home_only
                    assert lane != HOME
                    assert any(later > first for later in self.order.held), "results wait for it"
                    assert first not in host.aside
                    assert first in self.undone
                    assert in_lane_s >= 0
                    assert 0 <= pause_s <= 600
                    if host.doing == ("packed", first):
                        host.doing = None
                    self.where.pop(first, None)
                case ins.Reopen(first):
                    assert self.home_only
                    assert first in self.undone
                case ins.Moved():
                    assert each.lost_s <= each.last_s
                    assert each.first_s <= each.last_s == now_s
        assert releases == self.order.due(now_s, ticks=ticks)

    def _pack(self, lane: str, run: FakeRun, attempt: int) -> None:
        host, first = self.hosts[lane], run.first_seq
        assert host.doing is None, "one run at a time"
        assert host.left_bytes > 0
        assert first in self.undone
        assert attempt > self.attempts.get(first, 0)
        assert lane == HOME or not (self.home_only or run.disordered)
        if attempt == 1:
            assert all(first > earlier for earlier in host.packed), "the lowest goes first"
            host.packed.append(first)
        self.attempts[first] = attempt
        self.where[first] = lane
        host.doing = ("packing", first)

    def _send(self, lane: str, first: int) -> None:
        host = self.hosts[lane]
        assert host.doing == ("packed", first)
        assert first in self.undone
        assert not host.in_flight_bytes or host.payload_bytes <= host.left_bytes
        host.in_flight_bytes += host.payload_bytes
        host.doing = ("sending", first)

    def _done(self, each: Any) -> None:
        assert each.counts is all(run.first_seq not in self.before for run in each.runs) or not each.runs
        assert [run.first_seq for run in each.runs] == sorted(run.first_seq for run in each.runs)
        for run in each.runs:
            assert self.runs[run.first_seq] is run
            self.undone.remove(run.first_seq)
        for host in self.hosts.values():
            if host.doing is not None and host.doing[0] == "packed" and host.doing[1] not in self.undone:
                host.doing = None

    def answered(self, now_s: float, first: int, last: int, results: str) -> None:
        """An answer that is to count will be passed to the exchange next."""
        self.done[first] = results
        self.order.held[first] = (last, now_s)
