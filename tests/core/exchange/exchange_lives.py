"""Random lives of an exchange: everything that shells and hosts may do, in any order, checked by the oracle."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gateway.core.exchange import Exchange, ExchangeSettings
from gateway.core.exchange import events as ev
from policies.signals import HOME
from tests.core.exchange.exchange_oracle import Host, Oracle
from tests.core.exchange.exchange_shell import PATIENCE, FakeRun

LANES = (HOME, "vm1", "vm2")
BEFORE = 4
SIZE = 5
STEP_S = 0.05


class Life:
    """Random events; answers are those that hosts may give, and the oracle receives every event."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.now_s = 0.0
        self.held = False
        self.told: list[Any] = []
        before = [at for at in range(BEFORE) if chance.random() < 0.3]
        ranges = [(SIZE * at, SIZE * at + SIZE - 1) for at in before]
        done = {seq for first, last in ranges for seq in range(first, last + 1)}
        ordered, flush_s = chance.random() < 0.8, chance.choice([None, 2.0])
        home_only = chance.random() < 0.2
        self.oracle = Oracle(ordered=ordered, flush_s=flush_s, home_only=home_only, before=done)
        self.exchange: Exchange[FakeRun, str] = Exchange(
            ExchangeSettings(
                patience=PATIENCE,
                ordered=ordered,
                flush_s=flush_s,
                home_only=home_only,
                held_bytes_max=chance.choice([20, 1 << 20]),
            ),
            committed=ranges,
        )
        self.next_seq = 0
        for at in range(BEFORE):
            # A stateful query has logged again what may be part of a batch that runs again.
            if home_only or at not in before:
                self._log(SIZE, disordered=False)
            self.next_seq = SIZE * (at + 1)

    def live(self, steps: int, *, bounded: bool = False) -> None:
        """Do what the shell, hosts, cloud and scheduler may do, the common actions more often.

        Args:
            steps: how many things happen.
            bounded: the bound on results changes, too. Sabotage has its seeds from lives in which it does not.
        """
        common = (self.log, self.pack, self.pack, self.end_send, self.end_send, self.answer, self.answer, self.credit)
        some = (self.commit, self.tick, self.open, self.share, self.isolate)
        rare = (self.lose, self.drain, self.hold_or_resume, self.slot_passed, self.answer_a_part_of_a_run)
        for lane in LANES:
            self._open(lane, 200)
        self.share()
        for action in self.chance.choices(common * 12 + some * 8 + rare + (self.bound,) * 8 * bounded, k=steps):
            action()

    def tell(self, kind: Any, **fields: Any) -> None:
        self.now_s += STEP_S
        told = self.exchange.handle(kind(at_s=self.now_s, **fields))
        self.told += told
        self.oracle.follow(self.now_s, told, ticks=kind is ev.Tick)
        self.exchange.validate()

    def refused(self, kind: Any, **fields: Any) -> None:
        with pytest.raises(ValueError, match=r"lane|bytes|committed|must be able to go on"):
            self.exchange.handle(kind(at_s=self.now_s, **fields))
        self.exchange.validate()

    def _log(self, size: int, *, disordered: bool) -> None:
        run = FakeRun(self.next_seq, self.next_seq + size - 1, self.now_s, disordered)
        self.oracle.runs[run.first_seq] = run
        self.oracle.undone.add(run.first_seq)
        self.next_seq += size
        self.tell(ev.RunLogged, run=run)

    def bound(self) -> None:
        self.refused(ev.ResultsBounded, bound_bytes=0)
        self.tell(ev.ResultsBounded, bound_bytes=self.chance.choice([1, 8, 1 << 20]))

    # ----------------------------------------------------------------------------------------------- runs and lanes

    def log(self) -> None:
        self._log(self.chance.randint(1, 6), disordered=self.chance.random() < 0.1)

    def open(self) -> None:
        self._open(self.chance.choice(LANES), self.chance.choice([3, 12, 200]))

    def _open(self, lane: str, credit_bytes: int) -> None:
        if lane in self.oracle.hosts:
            self.refused(ev.LaneOpened, lane=lane, credit_bytes=credit_bytes)
            return
        self.oracle.hosts[lane] = Host(credit_bytes)
        planned_end_seq = self.chance.choice([0, 0, 40])
        self.tell(ev.LaneOpened, lane=lane, credit_bytes=credit_bytes, planned_end_seq=planned_end_seq)

    def lose(self) -> None:
        if self.oracle.hosts:
            lane = self.chance.choice(sorted(self.oracle.hosts))
            del self.oracle.hosts[lane]
            self.tell(ev.LaneLost, lane=lane, reason=self.chance.choice(["", "cut"]))

    def drain(self) -> None:
        self.tell(ev.LaneDraining, lane=self.chance.choice(LANES))

    def share(self) -> None:
        one = self.chance.choice([0.0, 0.3, 0.5, 1.0])
        two = (1 - one) * self.chance.choice([0.0, 0.5, 1.0])
        self.tell(ev.SharesSet, shares={HOME: 1 - one - two, "vm1": one, "vm2": two})

    def hold_or_resume(self) -> None:
        self.held = not self.held
        self.tell(ev.Held if self.held else ev.Resumed)

    # ------------------------------------------------------------------------------------------------ what shells do

    def _doing(self, what: str) -> list[str]:
        return sorted(lane for lane, host in self.oracle.hosts.items() if host.doing and host.doing[0] == what)

    def pack(self) -> None:
        for lane in self._doing("packing"):
            self._pack(lane, self.chance.choice([0, 1, 1, 1, 1]))

    def _pack(self, lane: str, rows: int) -> None:
        host = self.oracle.hosts[lane]
        assert host.doing is not None
        _, first = host.doing
        run, wanted = self.oracle.runs[first], first in self.oracle.undone
        host.doing = ("packed", first) if wanted and rows else None
        host.payload_bytes = run.events
        self.tell(ev.Packed, lane=lane, first_seq=first, raw_bytes=99, payload_bytes=run.events, rows=rows)
        if wanted and not rows:
            self._answer(lane, first, run.last_seq)

    def end_send(self) -> None:
        for lane in self._doing("sending"):
            self._end_send(lane, self.chance.choice([0.0, 0.0, 3.0]))

    def _end_send(self, lane: str, took_s: float) -> None:
        host = self.oracle.hosts[lane]
        assert host.doing is not None
        _, first = host.doing
        host.doing = None
        self.now_s += took_s
        host.sent_s[first] = self.now_s + STEP_S
        self.tell(ev.Sent, lane=lane, first_seq=first, took_s=took_s)

    def commit(self) -> None:
        # The runs of a query with state are overdue only while the sink has all results.
        whole = self.oracle.home_only
        ranges = tuple(each for each in sorted(self.oracle.uncommitted) if self.chance.random() < 0.8 or whole)
        if ranges:
            self.refused(ev.Committed, ranges=(*ranges, (10_000, 10_009)))
            self.oracle.uncommitted -= set(ranges)
            self.tell(ev.Committed, ranges=ranges)
            self.refused(ev.Committed, ranges=ranges)

    def tick(self) -> None:
        self.now_s += self.chance.choice([0.0, 0.0, 0.5, 3.0, 11.0, 130.0])
        self.tell(ev.Tick)

    def slot_passed(self) -> None:
        self.tell(ev.SlotPassed)

    # ------------------------------------------------------------------------------------------------ what hosts say

    def _some_sent(self) -> tuple[str, int] | None:
        """A run that a host has; rarely one that is done."""
        sent = [(lane, first) for lane, host in sorted(self.oracle.hosts.items()) for first in sorted(host.sent_s)]
        undone = [each for each in sent if each[1] in self.oracle.undone]
        return self.chance.choice(undone if undone and self.chance.random() < 0.8 else sent) if sent else None

    def answer(self) -> None:
        some = self._some_sent()
        if some is None:
            return
        lane, first = some
        host, last = self.oracle.hosts[lane], self.oracle.runs[first].last_seq
        while first in self.oracle.undone and self._goes_on(host, last + 1) and self.chance.random() < 0.3:
            last = self.oracle.runs[last + 1].last_seq
        self._answer(lane, first, last)

    def _goes_on(self, host: Host, first: int) -> bool:
        """Whether an answer may cover this run together with those before it, which are all undone."""
        return first in host.sent_s and first in self.oracle.undone and first not in self.oracle.before

    def _answer(self, lane: str, first: int, last: int) -> None:
        oracle, results = self.oracle, f"{lane} {self.now_s}"
        counts = first in oracle.undone and first not in oracle.before
        if first in oracle.before:
            last = oracle.runs[first].last_seq
        elif counts:
            oracle.answered(self.now_s + STEP_S, first, last, results)
        duplicates = self.exchange.duplicate_count
        fields = {"results": results, "result_bytes": last - first + 1, "batch_id": 1, "batch_s": 0.1}
        self.tell(ev.Answered, lane=lane, first_seq=first, last_seq=last, **fields)
        assert self.exchange.duplicate_count == duplicates + (not counts)
        assert self.exchange.is_done(first, last)

    def answer_a_part_of_a_run(self) -> None:
        open_now = sorted(self.oracle.undone - self.oracle.before)
        if open_now and self.oracle.hosts:
            lane, first = self.chance.choice(sorted(self.oracle.hosts)), self.chance.choice(open_now)
            fields = {"results": "", "result_bytes": 0, "batch_id": 1, "batch_s": 0.1}
            last = self.oracle.runs[first].last_seq + self.chance.choice([-1, 10_000])
            if last >= first:
                self.refused(ev.Answered, lane=lane, first_seq=first, last_seq=last, **fields)

    def isolate(self) -> None:
        some = self._some_sent()
        if some is not None:
            lane, first = some
            if self.oracle.where.get(first) == lane and first in self.oracle.undone:
                self.oracle.hosts[lane].aside.add(first)
            self.tell(ev.Isolating, lane=lane, first_seq=first)

    def credit(self) -> None:
        if self.oracle.hosts:
            self._credit(self.chance.choice(sorted(self.oracle.hosts)), self.chance.choice([0.3, 1.0]))

    def _credit(self, lane: str, part: float) -> None:
        host = self.oracle.hosts[lane]
        self.refused(ev.Credited, lane=lane, consumed_bytes=host.in_flight_bytes + 1)
        consumed_bytes = round(part * host.in_flight_bytes)
        host.in_flight_bytes -= consumed_bytes
        self.tell(ev.Credited, lane=lane, consumed_bytes=consumed_bytes)

    # ---------------------------------------------------------------------------------------------------- at the end

    def end(self) -> None:
        """Lose all lanes but one, and let that one work properly until nothing is left."""
        self.tell(ev.Resumed)
        for lane in list(self.oracle.hosts):
            del self.oracle.hosts[lane]
            self.tell(ev.LaneLost, lane=lane, reason="end")
        self.oracle.hosts[HOME] = Host(1000)
        self.tell(ev.LaneOpened, lane=HOME, credit_bytes=1000)
        for _ in range(20 * (len(self.oracle.runs) + 1)):
            if self.exchange.idle:
                break
            self._behave()
        assert self.exchange.idle
        assert self.exchange.waiting_runs == self.exchange.waiting_events == self.exchange.held_count == 0
        assert not self.oracle.undone
        assert self.oracle.order.out >= set(range(self.next_seq))
        assert self.exchange.is_done(0, self.next_seq - 1)

    def _behave(self) -> None:
        """Let home do its next step."""
        host = self.oracle.hosts[HOME]
        if self.oracle.uncommitted:
            ranges = tuple(sorted(self.oracle.uncommitted))
            self.oracle.uncommitted.clear()
            self.tell(ev.Committed, ranges=ranges)
        elif host.doing is not None and host.doing[0] == "packing":
            self._pack(HOME, 1)
        elif host.doing is not None and host.doing[0] == "sending":
            self._end_send(HOME, 0.0)
        elif host.in_flight_bytes:
            self._credit(HOME, 1.0)
        elif answerable := sorted(set(host.sent_s) & self.oracle.undone):
            self._answer(HOME, answerable[0], self.oracle.runs[answerable[0]].last_seq)
        else:
            self.now_s += 3.0
            self.tell(ev.Tick)
