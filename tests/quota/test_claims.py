"""Gateways that claim VMs and money of one quota, in any order; requests fail before or after their effect."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.fleet.quota.quotastore import QuotaStore
from infra.objectstore.memory import MemoryStore
from policies.quota.claims import Claimant, QuotaClaims
from policies.quota.requests import Needs, QuotaLimits, Request

LEASE_S, SILENT_S = 60.0, 100.0
DAY = 20_000


def claims(name: str, limits: QuotaLimits, *, inherits: bool = False, silent_s: float | None = SILENT_S) -> QuotaClaims:
    by = Claimant(holder=name, writer=f"{name} {inherits}", lease_s=LEASE_S, silent_s=silent_s, inherits=inherits)
    return QuotaClaims(limits, by, zlib.crc32(name.encode()))


def carried_out(claims: QuotaClaims, store: QuotaStore, now_s: float) -> list[Request]:
    """Carry out requests until there is none now."""
    asked = []
    while (request := claims.next(now_s)) is not None:
        asked.append(request)
        claims.answered(store.perform(request), now_s)
        assert len(asked) < 100, f"no end of requests: {asked[-3:]}"
    return asked


def test_a_vm_without_a_permit_needs_no_money(store: QuotaStore) -> None:
    first, second = claims("a", TWO), claims("b", TWO)
    first.need(Needs(2), 0.0)
    carried_out(first, store, 0.0)
    second.need(Needs(0, {DAY: 0.0}, (DAY, 1.0)), 0.0)
    carried_out(second, store, 0.0)
    assert second.allowance(0.0).usd_by_day == ((DAY, 0.0),)
    first.need(Needs(1), 1.0)
    carried_out(first, store, 20.0)
    carried_out(second, store, 20.0)
    assert (second.allowance(20.0).vms, second.allowance(20.0).usd_by_day) == (1, ((DAY, 2.5),))


@pytest.fixture
def store() -> QuotaStore:
    return QuotaStore(MemoryStore(), "shop")


TWO = QuotaLimits(max_vms=2, usd_per_day=10.0, usd_a_portion=2.5)


def test_a_gateway_gets_what_it_needs_with_few_requests(store: QuotaStore) -> None:
    first = claims("a", TWO)
    assert first.allowance(0.0).vms == 0
    first.need(Needs(1, {DAY: 3.0}), 0.0)
    asked = carried_out(first, store, 0.0)
    assert first.allowance(0.0).vms == 1
    assert first.allowance(0.0).usd_by_day == ((DAY, 5.0),)
    assert first.allowance(0.0).why == ""
    assert [type(request).__name__ for request in asked] == [
        "ReadPermits",
        "WriteClaim",
        "ReadDay",
        "AgreeDay",
        "TakePortion",
        "TakePortion",
        "ForgetPortions",
        "ForgetPortions",
    ]


def test_what_others_hold_is_not_granted_and_the_reason_is_told(store: QuotaStore) -> None:
    first, second = claims("a", TWO), claims("b", TWO)
    first.need(Needs(2, {DAY: 10.0}), 0.0)
    carried_out(first, store, 0.0)
    second.need(Needs(1, {}), 0.0)
    carried_out(second, store, 0.0)
    assert (second.allowance(0.0).vms, second.allowance(0.0).why) == (0, "all 2 VMs are in use")
    second.need(Needs(0, {DAY: 1.0}), 0.0)
    carried_out(second, store, 0.0)
    assert second.allowance(0.0).usd_by_day == ((DAY, 0.0),)
    assert second.allowance(0.0).why == "the 10 USD of the day are spent"


def test_a_permit_that_is_not_needed_is_free_for_others_soon(store: QuotaStore) -> None:
    first, second = claims("a", TWO), claims("b", TWO)
    first.need(Needs(2), 0.0)
    carried_out(first, store, 0.0)
    first.need(Needs(1), 1.0)
    second.need(Needs(1), 1.0)
    carried_out(first, store, 5.0)
    carried_out(second, store, 5.0)
    assert second.allowance(5.0).vms == 0
    carried_out(first, store, 12.0)
    assert first.allowance(12.0).vms == 1
    carried_out(second, store, 15.0)
    assert second.allowance(15.0).vms == 1


def test_a_holder_renews_and_counts_no_lease_that_is_over(store: QuotaStore) -> None:
    first = claims("a", TWO)
    first.need(Needs(1), 0.0)
    carried_out(first, store, 0.0)
    assert first.allowance(LEASE_S - 0.1).vms == 1
    assert first.allowance(LEASE_S).vms == 0
    carried_out(first, store, LEASE_S + 5)
    assert first.allowance(LEASE_S + 5).vms == 1, "nobody took it meanwhile"


def test_the_permit_of_a_gateway_that_is_silent_is_taken_once_its_vm_is_gone(store: QuotaStore) -> None:
    first, second = claims("a", TWO), claims("b", TWO)
    first.need(Needs(2), 0.0)
    carried_out(first, store, 0.0)
    second.need(Needs(1), 0.0)
    taken_s = next(s for s in range(1000) if carried_out(second, store, float(s)) and second.allowance(float(s)).vms)
    assert SILENT_S < taken_s < SILENT_S + LEASE_S
    carried_out(first, store, 1000.0)
    assert first.allowance(1000.0).vms == 1, "the other permit is its own still"


def test_without_an_end_of_a_vm_its_permit_is_never_taken(store: QuotaStore) -> None:
    first, second = claims("a", TWO, silent_s=None), claims("b", TWO)
    first.need(Needs(2), 0.0)
    carried_out(first, store, 0.0)
    second.need(Needs(1), 0.0)
    for s in range(0, 10_000, 7):
        carried_out(second, store, float(s))
    assert second.allowance(10_000.0).vms == 0


def test_a_gateway_that_restarts_has_the_permits_of_before(store: QuotaStore) -> None:
    first = claims("a", TWO)
    first.need(Needs(2), 0.0)
    carried_out(first, store, 0.0)
    again = claims("a", TWO, inherits=True)
    assert not again.settled
    again.need(Needs(2), 10.0)
    carried_out(again, store, 10.0)
    assert again.settled
    assert again.allowance(10.0).vms == 2
    carried_out(first, store, 30.0)
    assert first.allowance(30.0).vms == 0, "the old process has lost them"


def test_a_request_whose_outcome_is_unknown_is_repeated_and_its_lease_counts_from_the_first_try(
    store: QuotaStore,
) -> None:
    first = claims("a", TWO)
    first.need(Needs(1), 0.0)
    first.answered(store.perform(_asked(first, 0.0)), 0.0)
    write = _asked(first, 1.0)
    store.perform(write)  # it is carried out, but the answer is lost
    first.failed("no answer", 2.0)
    assert first.allowance(2.0).why == "no answer"
    assert first.next(2.1) is None, "it pauses"
    assert _asked(first, 50.0) == write
    first.answered(store.perform(write), 51.0)
    assert first.allowance(60.9).vms == 1
    assert first.allowance(61.1).vms == 0


def _asked(claims: QuotaClaims, now_s: float) -> Request:
    request = claims.next(now_s)
    assert request is not None
    return request


def test_the_terms_of_a_day_are_those_of_the_gateway_that_began_it(store: QuotaStore) -> None:
    first, second = claims("a", TWO), claims("b", QuotaLimits(max_vms=2, usd_per_day=1000.0, usd_a_portion=1.0))
    first.need(Needs(0, {DAY: 1.0}), 0.0)
    carried_out(first, store, 0.0)
    second.need(Needs(0, {DAY: 1000.0}), 0.0)
    carried_out(second, store, 0.0)
    assert second.allowance(0.0).usd_by_day == ((DAY, 7.5),)


def test_few_objects_are_left_of_a_permit_that_is_renewed_for_long() -> None:
    objects = MemoryStore()
    first, store = claims("a", TWO), QuotaStore(objects, "shop")
    first.need(Needs(1), 0.0)
    for s in range(0, 2000, 5):
        carried_out(first, store, float(s))
        assert first.allowance(float(s)).vms == 1
    assert len(list(objects.list("quotas/shop/vms/"))) <= 4


def test_the_portions_of_days_that_are_long_over_are_deleted_some_for_each_that_is_taken() -> None:
    objects = MemoryStore()
    first, store = claims("a", TWO), QuotaStore(objects, "shop")
    for day in range(DAY, DAY + 60):
        first.need(Needs(0, {day: 10.0}), 0.0)
        carried_out(first, store, 0.0)
    # Four portions and the terms of each of the last days.
    assert len(list(objects.list("quotas/shop/days/"))) <= 31 * 5


class Gateways(RuleBasedStateMachine):
    """Some gateways, each with a clock of its own; between two requests of one, others may do anything."""

    @initialize(
        permits=st.integers(1, 3), usd=st.sampled_from([None, 5.0]), offsets_s=st.tuples(*[st.floats(0, 1e6)] * 3)
    )
    def begin(self, permits: int, usd: float | None, offsets_s: tuple[float, ...]) -> None:
        self.limits = QuotaLimits(max_vms=permits, usd_per_day=usd, usd_a_portion=1.0)
        self.objects = MemoryStore()
        self.store = QuotaStore(self.objects, "shop")
        self.now_s, self.offsets_s = 0.0, offsets_s
        self.gateways = [claims(f"g{at}", self.limits) for at in range(3)]
        self.open: list[Request | None] = [None] * 3
        self.delayed: list[Callable[[], object]] = []

    def at(self, gateway: int) -> float:
        return self.now_s + self.offsets_s[gateway]

    each = st.integers(0, 2)

    @rule(
        gateway=each,
        vms=st.integers(0, 3),
        usd=st.floats(0, 6),
        day=st.integers(DAY, DAY + 1),
        another_usd=st.none() | st.floats(0, 2),
    )
    def need(self, gateway: int, vms: int, usd: float, day: int, another_usd: float | None) -> None:
        another = None if another_usd is None else (day, another_usd)
        self.gateways[gateway].need(Needs(vms, {day: usd}, another), self.at(gateway))

    @rule(s=st.sampled_from([0.1, 1.0, 5.0, 15.0, 50.0, 100.0, 1000.0]))
    def pass_time(self, s: float) -> None:
        self.now_s += s

    @rule(gateway=each)
    def ask(self, gateway: int) -> None:
        if self.open[gateway] is None:
            self.open[gateway] = self.gateways[gateway].next(self.at(gateway))

    @rule(gateway=each, fate=st.sampled_from(["done", "done", "done", "answer lost", "not done", "delayed"]))
    def carry_out(self, gateway: int, fate: str) -> None:
        request, self.open[gateway] = self.open[gateway], None
        if request is None:
            return
        if fate == "done":
            self.gateways[gateway].answered(self.store.perform(request), self.at(gateway))
            return
        if fate == "answer lost":
            self.store.perform(request)
        if fate == "delayed":
            self.delayed.append(lambda: self.store.perform(request))
        self.gateways[gateway].failed("no answer", self.at(gateway))

    @rule()
    def do_delayed(self) -> None:
        """A request that nobody waits for any more is carried out after all."""
        while self.delayed:
            self.delayed.pop()()

    @rule(gateway=each)
    def finish(self, gateway: int) -> None:
        """A gateway does all that it can do now."""
        if self.open[gateway] is not None:
            self.carry_out(gateway, "done")
        carried_out(self.gateways[gateway], self.store, self.at(gateway))

    @rule(gateway=each)
    def restart(self, gateway: int) -> None:
        known = self.gateways[gateway].allowance(self.at(gateway))
        self.open[gateway] = None
        by = Claimant(
            holder=f"g{gateway}", writer=f"{gateway} {self.now_s}", lease_s=LEASE_S, silent_s=SILENT_S, inherits=True
        )
        self.gateways[gateway] = QuotaClaims(self.limits, by, gateway, dict(known.usd_by_day or ()))

    @invariant()
    def vms_are_within_the_limit(self) -> None:
        held = [gateway.allowance(self.at(at)).vms for at, gateway in enumerate(self.gateways)]
        assert sum(held) <= self.limits.max_vms, held

    @invariant()
    def money_is_within_the_limit(self) -> None:
        if self.limits.usd_per_day is None:
            return
        for day in (DAY, DAY + 1):
            usd = [
                dict(gateway.allowance(self.at(at)).usd_by_day or ()).get(day, 0.0)
                for at, gateway in enumerate(self.gateways)
            ]
            assert sum(usd) <= self.limits.usd_per_day + 1e-9, usd


Gateways.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestGateways = Gateways.TestCase
