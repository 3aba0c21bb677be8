"""The scheduler's surroundings, at random: clouds, lanes and queries, with separate books."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.core.decide.scheduler import Scheduler
from policies.money.ledger import Budget
from policies.quota.requests import Allowance
from policies.signals import (
    HOME,
    Command,
    DrainVm,
    Event,
    QueryOpened,
    QuerySlot,
    QuotaGranted,
    SetRoute,
    SlotEnded,
    StartVm,
    StopAll,
    TerminateVm,
    VmDrained,
    VmFailed,
    VmGone,
    VmLost,
    VmReady,
    VmReclaimed,
)
from policies.steering import DecisionsPaused, DecisionsResumed, QueryPinned, SettingsChanged, VmStopOrdered
from tests.policies.policy_data import SWITCHING, TERMS, query_settings, scheduler_settings

QUERIES = ("auto", "fixed", "moved", "state")
LATENCIES = st.sampled_from([0.0, 0.9, 1.0, 2.0, 2.9, 3.0, 5.0, 60.0])
OF_QUERIES = {
    "auto": query_settings("auto", share=None),
    "fixed": query_settings("fixed", share=0.1),
    "moved": query_settings("moved", mode="query"),
    "state": query_settings("state", switchable=False),
}
MAX_VMS = 3


class World(RuleBasedStateMachine):
    """The surroundings: they keep their own books of all commands and compare."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(scheduler_settings())
        self.now_s = 1000.0
        self.events = 0
        self.names: tuple[str, ...] = QUERIES
        self.max_vms = MAX_VMS
        self.vms: dict[str, str] = {}
        self.started_s: dict[str, float] = {}
        self.stopping = False
        self.paused_until_s = 0.0
        self.pins: dict[str, tuple[float, float]] = {}
        self.budget = Budget()
        self.wall_ahead_s = 1.7e9
        self.granted = Allowance(MAX_VMS, None)

    periods = st.none() | st.floats(0.5, 12)

    @initialize(
        day=periods,
        hour=periods,
        query_day=periods,
        mbytes=st.sampled_from([0, 5]),
        quota=st.sampled_from([False, True]),
    )
    def open(self, day: float | None, hour: float | None, query_day: float | None, mbytes: int, quota: bool) -> None:
        self.egress_bytes = mbytes * 1_000_000
        period_usd = TERMS.time_usd(20.0)
        self.budget = Budget(*(None if limit is None else limit * period_usd for limit in (day, hour, query_day)))
        settings = [OF_QUERIES[name] for name in QUERIES]
        self.scheduler = Scheduler(scheduler_settings(*settings, max_vms=MAX_VMS, budget=self.budget, quota=quota))
        if quota:
            self.granted = Allowance()

    # ------------------------------------------------------------------------------------------------------ the world

    def tell(self, kind: type[Event], **fields: Any) -> None:
        self.events += 1
        event = kind(event_id=f"e{self.events}", at_s=self.now_s, **fields)
        for command in self.scheduler.handle(event):
            assert command.cause.event_id == event.event_id
            self.obey(command)
        self.scheduler.validate()

    def obey(self, command: Command) -> None:
        match command:
            case StartVm():
                assert not self.stopping
                assert self.now_s >= self.paused_until_s
                assert command.vm not in self.vms
                assert len(self.vms) < min(self.max_vms, self.granted.vms)
                self.vms[command.vm] = "starting"
                self.started_s[command.vm] = self.now_s
            case DrainVm():
                assert self.vms[command.vm] == "ready"
                assert all(lane != command.vm for route in self.scheduler.routes.values() for lane, _ in route)
                self.vms[command.vm] = "draining"
            case TerminateVm():
                assert self.vms[command.vm] in {"starting", "ready", "draining", "failed", "lost"}
                self.vms[command.vm] = "ending"
            case SetRoute():
                assert self.scheduler.routes[command.query] == command.shares
                assert command.shares[0][0] == HOME
                assert command.query != "state"
                for lane, share in command.shares:
                    assert lane == HOME or (self.vms[lane] == "ready" and share > 0)

    def some(self, state: str, pick: int) -> str | None:
        names = sorted(name for name, now in self.vms.items() if now == state)
        return names[pick % len(names)] if names else None

    picks = st.integers(0, 5)

    @rule(
        latencies_s=st.tuples(*[LATENCIES for _ in QUERIES]),
        cloud_s=st.none() | LATENCIES,
        raw_bytes=st.sampled_from([0, 10_000]),
        length_s=st.floats(0.9, 1.1),
        repeat=st.sampled_from([1, 1, 3, 20]),
    )
    def slot(
        self, latencies_s: tuple[float, ...], cloud_s: float | None, raw_bytes: int, length_s: float, repeat: int
    ) -> None:
        for _ in range(repeat):
            for name in [name for name, now in self.vms.items() if now == "ending"]:
                self.gone(name)
            before = self.scheduler.vms.keys()
            self.now_s += length_s
            slots = tuple(
                QuerySlot(
                    query=query,
                    latency_s=latency_s,
                    home_lane_s=latency_s,
                    cloud_lane_s=cloud_s,
                    input_bytes_per_s=self.egress_bytes * MAX_VMS,
                    raw_bytes={lane: raw_bytes for lane, _ in self.scheduler.routes[query][1:]},
                    sent_bytes={lane: self.egress_bytes for lane, _ in self.scheduler.routes[query][1:]},
                )
                for query, latency_s in zip(QUERIES, latencies_s, strict=True)
                if query in self.names
            )
            self.tell(SlotEnded, queries=slots, wall_s=self.now_s + self.wall_ahead_s)
            assert [decision.query for decision in self.scheduler.last_decisions] == list(self.names)
            assert all(decision.verdict for decision in self.scheduler.last_decisions)
            self.check_pins()
            for name in before:
                self.check_period(name, length_s)

    def check_period(self, name: str, length_s: float) -> None:
        """A period that began in this slot was decided before, unless the VM was not ready in time for that."""
        periods_before = int((self.now_s - length_s - self.started_s[name]) // 20.0)
        periods_now = int((self.now_s - self.started_s[name]) // 20.0)
        if periods_now > periods_before and self.vms[name] in {"ready", "draining"}:
            kept = [line.at_s for line in self.scheduler.story(name) if line.happened.name == "KEEP"]
            ready = [line.at_s for line in self.scheduler.story(name) if line.happened.name == "READY"]
            began_s = self.started_s[name] + periods_now * 20.0
            assert any(began_s - 12.0 <= at_s < began_s for at_s in kept) or ready[0] > began_s - 2.2

    def check_pins(self) -> None:
        """A pinned share is that of the route, if a VM is ready and the query may go."""
        self.pins = {name: pin for name, pin in self.pins.items() if self.now_s < pin[1]}
        for name, (share, _) in self.pins.items():
            in_cloud = 1 - self.scheduler.routes[name][0][1]
            may_go = not self.scheduler.queries[name].why_home and "ready" in self.vms.values()
            wanted = 1.0 if name == "moved" else share
            assert in_cloud == (pytest.approx(wanted, abs=1e-3) if share and may_go else 0.0)

    @precondition(lambda self: self.granted.usd_by_day is not None)
    @rule(vms=st.integers(0, MAX_VMS), periods=st.floats(0, 3), meets=st.booleans())
    def quota_granted(self, vms: int, periods: float, meets: bool) -> None:
        """The quota grants what is needed, or something else; money that was granted stays."""
        needs = self.scheduler.needs(self.now_s)
        assert needs.vms == len(self.vms)
        usd_by_day = dict(self.granted.usd_by_day or ())
        for day, usd in needs.usd(needs.permits).items():
            wanted_usd = usd if meets else periods * TERMS.time_usd(20.0)
            usd_by_day[day] = max(usd_by_day.get(day, 0.0), wanted_usd)
        self.granted = Allowance(needs.permits if meets else vms, tuple(usd_by_day.items()))
        self.tell(QuotaGranted, allowance=self.granted)

    @rule(
        gone=st.sets(st.sampled_from(QUERIES), max_size=len(QUERIES) - 1),
        higher=st.sampled_from([1.0, 4.0]),
        share=st.none() | st.floats(0.05, 1),
        max_vms=st.integers(0, MAX_VMS),
    )
    def changed(self, gone: set[str], higher: float, share: float | None, max_vms: int) -> None:
        """The config changes: queries come or go, others go on with other thresholds and shares."""
        self.names = tuple(name for name in QUERIES if name not in gone)
        self.pins = {name: pin for name, pin in self.pins.items() if name in self.names}
        self.max_vms = max_vms
        switching = replace(SWITCHING, start_vm_above_s=higher * SWITCHING.start_vm_above_s)
        queries = [replace(OF_QUERIES[name], switching=switching) for name in self.names]
        queries = [replace(query, share=share) if query.name == "fixed" else query for query in queries]
        self.tell(SettingsChanged, queries=tuple(queries), max_vms=max_vms, budget=self.budget)
        assert tuple(self.scheduler.queries) == tuple(self.scheduler.routes) == self.names

    @rule(name=st.sampled_from(QUERIES), share=st.none() | st.sampled_from([0.0, 0.3, 1.0]), for_s=st.floats(1, 60))
    def pinned(self, name: str, share: float | None, for_s: float) -> None:
        if name not in self.names:
            return
        self.pins.pop(name, None)
        if share is not None and name != "state":
            self.pins[name] = share, self.now_s + for_s
        self.tell(QueryPinned, query=name, share=share, until_s=self.now_s + for_s)

    @rule(for_s=st.floats(0, 40))
    def paused(self, for_s: float) -> None:
        if not self.stopping:
            self.paused_until_s = self.now_s + for_s
        self.tell(DecisionsPaused, until_s=self.now_s + for_s)

    @rule()
    def resumed(self) -> None:
        self.paused_until_s = 0.0
        self.tell(DecisionsResumed)

    @rule(pick=picks, state=st.sampled_from(["starting", "ready", "draining"]), at_once=st.booleans())
    def ordered_to_stop(self, pick: int, state: str, at_once: bool) -> None:
        if name := self.some(state, pick):
            self.tell(VmStopOrdered, vm=name, at_once=at_once)
            assert self.vms[name] == ("ending" if at_once or state == "starting" else "draining")

    @rule(jump_s=st.sampled_from([-86_400.0, -3600.0, -1.0, 1.0, 3600.0, 86_400.0]))
    def wall_clock_jumps(self, jump_s: float) -> None:
        if abs(self.wall_ahead_s + jump_s - 1.7e9) < 2.5 * 86_400:
            self.wall_ahead_s += jump_s

    @rule(pick=picks)
    def ready(self, pick: int) -> None:
        if name := self.some("starting", pick):
            self.vms[name] = "ready"
            self.tell(VmReady, vm=name, billing_since_s=self.started_s[name])

    @rule(pick=picks)
    def failed(self, pick: int) -> None:
        if name := self.some("starting", pick):
            self.vms[name] = "failed"
            self.tell(VmFailed, vm=name, reason="no capacity")

    @rule(pick=picks, state=st.sampled_from(["starting", "ready", "draining"]))
    def lost(self, pick: int, state: str) -> None:
        if name := self.some(state, pick):
            self.vms[name] = "lost"
            self.tell(VmLost, vm=name, reason="heartbeat")

    @rule(pick=picks, state=st.sampled_from(["starting", "ready", "draining"]), in_s=st.floats(-1, 30))
    def reclaimed(self, pick: int, state: str, in_s: float) -> None:
        if name := self.some(state, pick):
            self.tell(VmReclaimed, vm=name, ends_s=self.now_s + in_s)
            assert self.vms[name] in {"draining", "ending"}

    @rule(pick=picks)
    def drained(self, pick: int) -> None:
        if name := self.some("draining", pick):
            self.tell(VmDrained, vm=name)
            assert self.vms[name] == "ending"

    @rule(pick=picks, state=st.sampled_from(["ending", "ready"]))
    def taken_back(self, pick: int, state: str) -> None:
        if name := self.some(state, pick):
            self.gone(name)

    def gone(self, name: str) -> None:
        del self.vms[name]
        self.tell(VmGone, vm=name)

    @rule(query=st.sampled_from(QUERIES[:3]), switchable=st.booleans())
    def opened(self, query: str, switchable: bool) -> None:
        if query in self.names:
            self.tell(QueryOpened, query=query, switchable=switchable)

    @precondition(lambda self: self.events > 30)
    @rule()
    def stop_all(self) -> None:
        self.stopping = True
        self.tell(StopAll)

    # ------------------------------------------------------------------------------------------------------- promises

    @invariant()
    def books_agree(self) -> None:
        assert self.scheduler.vms.keys() == self.vms.keys()
        assert len(self.vms) <= MAX_VMS

    @invariant()
    def budget_is_kept(self) -> None:
        state = self.scheduler.ledger
        parts = [*state.spent, *(part for held in state.reserved for part in held.parts)]
        sums: dict[tuple[object, ...], float] = defaultdict(float)
        for part in parts:
            day = part.hour // 24
            for key in (("day", day), ("hour", part.hour), ("query", day, part.query)):
                sums[key] += part.usd
        limits = {
            "day": self.budget.usd_per_day,
            "hour": self.budget.usd_per_hour,
            "query": self.budget.usd_per_query_day,
        }
        for (kind, *_), usd in sums.items():
            limit_usd = limits[str(kind)]
            assert limit_usd is None or usd <= limit_usd + 1e-9
        if self.granted.usd_by_day is not None:
            granted: dict[object, float] = dict(self.granted.usd_by_day)
            assert all(usd <= granted.get(day, 0.0) + 1e-9 for (kind, day, *_), usd in sums.items() if kind == "day")

    @invariant()
    def what_was_spent_is_what_was_billed(self) -> None:
        spent_usd = sum(entry.usd for entry in self.scheduler.ledger.spent)
        billed_usd = self.scheduler.totals(self.now_s).usd
        assert spent_usd <= billed_usd + 1e-9
        assert (
            billed_usd
            <= spent_usd + sum(part.usd for held in self.scheduler.ledger.reserved for part in held.parts) + 1e-9
        )

    def teardown(self) -> None:
        if self.events:
            self.stopping = True
            self.tell(StopAll)
            assert all(route == ((HOME, 1.0),) for route in self.scheduler.routes.values())
            for name in [name for name, now in self.vms.items() if now == "draining"]:
                self.tell(VmDrained, vm=name)
            assert set(self.vms.values()) <= {"ending"}
            for name in list(self.vms):
                self.gone(name)
            totals = self.scheduler.totals(self.now_s)
            assert totals.started == totals.stopped
            spent_usd = sum(entry.usd for entry in self.scheduler.ledger.spent)
            assert abs(totals.usd - spent_usd) < 1e-9
            assert abs(totals.usd - sum(bill.usd for bill in totals.bills)) < 1e-9
            assert all(abs(bill.billed_s - bill.used_s - bill.unused_s) < 1e-9 for bill in totals.bills)
            assert not self.scheduler.vms
