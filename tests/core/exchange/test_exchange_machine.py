"""Whatever happens, in whatever order: each run is released once and in order, and the exchange comes to rest."""

from __future__ import annotations

from typing import Any

import pytest
from exchange_oracle import Host, Oracle
from exchange_shell import PATIENCE, FakeRun
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from gateway.core.exchange import Exchange, ExchangeSettings
from gateway.core.exchange import events as ev
from policies.signals import HOME

LANES = (HOME, "vm1", "vm2")
BEFORE = 4
SIZE = 5


class ExchangeMachine(RuleBasedStateMachine):
    """Random events, of which the answers are those that hosts may give; the oracle follows what is told."""

    @initialize(
        ordered=st.booleans(),
        flush_s=st.sampled_from([None, 2.0]),
        home_only=st.sampled_from([False, False, False, True]),
        held_bytes_max=st.sampled_from([20, 1 << 20]),
        before=st.sets(st.integers(0, BEFORE - 1)),
    )
    def begin(
        self, ordered: bool, flush_s: float | None, home_only: bool, held_bytes_max: int, before: set[int]
    ) -> None:
        self.now_s = 0.0
        ranges = [(SIZE * at, SIZE * at + SIZE - 1) for at in sorted(before)]
        done = {seq for first, last in ranges for seq in range(first, last + 1)}
        self.oracle = Oracle(ordered=ordered, flush_s=flush_s, home_only=home_only, before=done)
        self.exchange: Exchange[FakeRun, str] = Exchange(
            ExchangeSettings(
                patience=PATIENCE, ordered=ordered, flush_s=flush_s, home_only=home_only, held_bytes_max=held_bytes_max
            ),
            committed=ranges,
        )
        self.next_seq = 0
        for at in range(BEFORE):
            # A stateful query has logged again what may be part of a batch that runs again.
            if home_only or at not in before:
                self._log(SIZE, disordered=False)
            self.next_seq = SIZE * (at + 1)
        self.tell(ev.LaneOpened, lane=HOME, credit_bytes=self._host(HOME, 40).credit_bytes)
        self.held = False

    def tell(self, kind: Any, **fields: Any) -> None:
        self.now_s += 0.05
        told = self.exchange.handle(kind(at_s=self.now_s, **fields))
        self.oracle.follow(self.now_s, told, ticks=kind is ev.Tick)
        self.exchange.validate()

    def refused(self, kind: Any, **fields: Any) -> None:
        with pytest.raises(ValueError, match=r"lane|bytes|committed"):
            self.exchange.handle(kind(at_s=self.now_s, **fields))
        self.exchange.validate()

    def _host(self, lane: str, credit_bytes: int) -> Host:
        self.oracle.hosts[lane] = host = Host(credit_bytes)
        return host

    def _log(self, size: int, *, disordered: bool) -> None:
        run = FakeRun(self.next_seq, self.next_seq + size - 1, self.now_s, disordered)
        self.oracle.runs[run.first_seq] = run
        self.oracle.undone.add(run.first_seq)
        self.next_seq += size
        self.tell(ev.RunLogged, run=run)

    # ----------------------------------------------------------------------------------------------- runs and lanes

    @rule(size=st.integers(1, 6), disordered=st.sampled_from([False, False, False, True]))
    def log(self, size: int, disordered: bool) -> None:
        self._log(size, disordered=disordered)

    @rule(lane=st.sampled_from(LANES), credit_bytes=st.sampled_from([3, 12, 200]), planned=st.integers(0, 40))
    def open(self, lane: str, credit_bytes: int, planned: int) -> None:
        if lane in self.oracle.hosts:
            self.refused(ev.LaneOpened, lane=lane, credit_bytes=credit_bytes)
            return
        self._host(lane, credit_bytes)
        self.tell(ev.LaneOpened, lane=lane, credit_bytes=credit_bytes, planned_end_seq=planned)

    @precondition(lambda self: self.oracle.hosts)
    @rule(data=st.data(), reason=st.sampled_from(["", "cut"]))
    def lose(self, data: st.DataObject, reason: str) -> None:
        lane = data.draw(st.sampled_from(sorted(self.oracle.hosts)))
        del self.oracle.hosts[lane]
        self.tell(ev.LaneLost, lane=lane, reason=reason)

    @rule(lane=st.sampled_from(LANES))
    def drain(self, lane: str) -> None:
        self.tell(ev.LaneDraining, lane=lane)

    @rule(one=st.sampled_from([0.0, 0.3, 0.5, 1.0]), part=st.sampled_from([0.0, 0.5, 1.0]))
    def share(self, one: float, part: float) -> None:
        two = (1 - one) * part
        self.tell(ev.SharesSet, shares={HOME: 1 - one - two, "vm1": one, "vm2": two})

    @rule()
    def hold_or_resume(self) -> None:
        self.held = not self.held
        self.tell(ev.Held if self.held else ev.Resumed)

    # ------------------------------------------------------------------------------------------------ what shells do

    def _doing(self, what: str) -> list[str]:
        return sorted(lane for lane, host in self.oracle.hosts.items() if host.doing and host.doing[0] == what)

    @precondition(lambda self: self._doing("packing"))
    @rule(data=st.data(), rows=st.sampled_from([0, 1, 1, 1]))
    def pack(self, data: st.DataObject, rows: int) -> None:
        self._pack(data.draw(st.sampled_from(self._doing("packing"))), rows)

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

    @precondition(lambda self: self._doing("sending"))
    @rule(data=st.data(), took_s=st.floats(0, 3))
    def end_send(self, data: st.DataObject, took_s: float) -> None:
        self._end_send(data.draw(st.sampled_from(self._doing("sending"))), took_s)

    def _end_send(self, lane: str, took_s: float) -> None:
        host = self.oracle.hosts[lane]
        assert host.doing is not None
        _, first = host.doing
        host.doing = None
        host.sent_s[first] = self.now_s
        host.aside.discard(first)
        self.tell(ev.Sent, lane=lane, first_seq=first, took_s=took_s)

    @precondition(lambda self: self.oracle.uncommitted)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        ranges = sorted(data.draw(st.sets(st.sampled_from(sorted(self.oracle.uncommitted)), min_size=1)))
        self.refused(ev.Committed, ranges=(*ranges, (10_000, 10_009)))
        self.oracle.uncommitted -= set(ranges)
        self.tell(ev.Committed, ranges=tuple(ranges))
        self.refused(ev.Committed, ranges=tuple(ranges))

    @rule(after_s=st.sampled_from([0.0, 0.5, 3.0, 11.0, 130.0]))
    def tick(self, after_s: float) -> None:
        self.now_s += after_s
        self.tell(ev.Tick)

    @rule()
    def slot_passed(self) -> None:
        self.tell(ev.SlotPassed)

    # ------------------------------------------------------------------------------------------------ what hosts say

    def _having(self) -> list[str]:
        return sorted(lane for lane, host in self.oracle.hosts.items() if host.sent_s)

    @precondition(lambda self: self._having())
    @rule(data=st.data(), more=st.integers(0, 3))
    def answer(self, data: st.DataObject, more: int) -> None:
        lane = data.draw(st.sampled_from(self._having()))
        host = self.oracle.hosts[lane]
        first = data.draw(st.sampled_from(sorted(host.sent_s)))
        last = self.oracle.runs[first].last_seq
        while more and first in self.oracle.undone and self._goes_on(host, last + 1):
            last = self.oracle.runs[last + 1].last_seq
            more -= 1
        self._answer(lane, first, last)

    def _goes_on(self, host: Host, first: int) -> bool:
        """Whether an answer may cover this run as well as those before it, which are all undone."""
        return first in host.sent_s and first in self.oracle.undone and first not in self.oracle.before

    def _answer(self, lane: str, first: int, last: int) -> None:
        oracle, results = self.oracle, f"{lane} {self.now_s}"
        counts = first in oracle.undone and first not in oracle.before
        if first in oracle.before:
            last = oracle.runs[first].last_seq
        elif counts:
            oracle.answered(self.now_s + 0.05, first, last, results)
        duplicates = self.exchange.duplicate_count
        fields = {"results": results, "result_bytes": last - first + 1, "batch_id": 1, "batch_s": 0.1}
        self.tell(ev.Answered, lane=lane, first_seq=first, last_seq=last, **fields)
        assert self.exchange.duplicate_count == duplicates + (not counts)
        assert self.exchange.is_done(first, last)

    @precondition(lambda self: self.oracle.undone - self.oracle.before and self.oracle.hosts)
    @rule(data=st.data())
    def answer_a_part_of_a_run(self, data: st.DataObject) -> None:
        lane = data.draw(st.sampled_from(sorted(self.oracle.hosts)))
        first = data.draw(st.sampled_from(sorted(self.oracle.undone - self.oracle.before)))
        fields = {"results": "", "result_bytes": 0, "batch_id": 1, "batch_s": 0.1}
        last = self.oracle.runs[first].last_seq
        self.refused(ev.Answered, lane=lane, first_seq=first, last_seq=last + 10_000, **fields)

    @precondition(lambda self: self._having())
    @rule(data=st.data())
    def isolate(self, data: st.DataObject) -> None:
        lane = data.draw(st.sampled_from(self._having()))
        first = data.draw(st.sampled_from(sorted(self.oracle.hosts[lane].sent_s)))
        if first in self.exchange._lanes[lane].copies and self.exchange._lanes[lane].copies[first].open:
            self.oracle.hosts[lane].aside.add(first)
        self.tell(ev.Isolating, lane=lane, first_seq=first)

    @precondition(lambda self: self.oracle.hosts)
    @rule(data=st.data())
    def credit(self, data: st.DataObject) -> None:
        self._credit(data.draw(st.sampled_from(sorted(self.oracle.hosts))), data.draw(st.floats(0, 1)))

    def _credit(self, lane: str, part: float) -> None:
        host = self.oracle.hosts[lane]
        self.refused(ev.Credited, lane=lane, consumed_bytes=host.in_flight_bytes + 1)
        consumed_bytes = round(part * host.in_flight_bytes)
        host.in_flight_bytes -= consumed_bytes
        self.tell(ev.Credited, lane=lane, consumed_bytes=consumed_bytes)

    # ---------------------------------------------------------------------------------------------------- at the end

    def teardown(self) -> None:
        if not hasattr(self, "oracle"):
            return
        self.tell(ev.Resumed)
        for lane in list(self.oracle.hosts):
            del self.oracle.hosts[lane]
            self.tell(ev.LaneLost, lane=lane, reason="end")
        self._host(HOME, 1000)
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
        """Let home do one thing that is its turn."""
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


TestExchange = ExchangeMachine.TestCase
TestExchange.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
