"""The other options that `spillway why` tells for policies that compute none, against sums done by hand."""

from __future__ import annotations

import pytest

from policies.advice import Site
from policies.alternatives import Standing, alternatives
from policies.money.billing import BillingTerms
from policies.signals import HOME, QuerySlot
from tests.policies.policy_data import Checked, scheduler_settings

# A VM costs 0.01 USD in a period of 100 s, so processing 1,000 events a second for a second costs 0.0001 USD.
SITE = Site(
    max_vms=3,
    terms=BillingTerms(period_s=100.0, minimum_s=100.0, usd_per_hour=0.36, usd_per_gb_sent=0.0),
    boot_s=20.0,
    slot_s=1.0,
)
LATE_USD = 20 * 0.36 / 3600 / 1000


def usd_of(slot: QuerySlot, standing: Standing) -> dict[int, float]:
    found = alternatives(slot, SITE, standing, latency_s=2.0, sent_part=1.0)
    assert found is not None
    return {option.vms: option.usd for option in found.options}


def test_before_home_has_processed_anything_there_is_nothing_to_compare() -> None:
    slot = QuerySlot(query="q", latency_s=0.0)
    assert alternatives(slot, SITE, Standing((), 0, SITE.boot_s), latency_s=2.0, sent_part=1.0) is None


def test_while_home_is_enough_each_vm_costs_its_time_and_nothing_else() -> None:
    slot = QuerySlot(query="q", latency_s=0.5, input_rate=500.0, rates={HOME: 1000.0})
    assert usd_of(slot, Standing((), 0, SITE.boot_s)) == pytest.approx({0: 0.0, 1: 0.01})
    assert usd_of(slot, Standing(("vm-1",), 0, SITE.boot_s)) == pytest.approx({0: 0.0, 1: 0.01, 2: 0.02})


def test_late_events_are_counted_until_a_vm_has_booted_and_the_backlog_is_gone() -> None:
    # 500 events a second too many: late once 2,000 wait, after 4 s. A VM serves after 20 s, when 10,000 wait; with it
    # 500 a second fewer wait, and 4,000 are 2 s of two engines: that takes 12 s.
    slot = QuerySlot(query="q", latency_s=0.5, input_rate=1500.0, rates={HOME: 1000.0})
    usd = usd_of(slot, Standing((), 0, SITE.boot_s))
    assert usd[0] == pytest.approx(96 * 1500 * LATE_USD, rel=0.03)
    assert usd[1] == pytest.approx(0.01 + (32 - 4) * 1500 * LATE_USD, rel=0.1)


def test_traffic_is_paid_for_what_home_cannot_take() -> None:
    terms = BillingTerms(period_s=100.0, minimum_s=100.0, usd_per_hour=0.36, usd_per_gb_sent=1.0)
    site = Site(max_vms=1, terms=terms, boot_s=20.0, slot_s=1.0)
    slot = QuerySlot(
        query="q", latency_s=0.5, input_rate=1500.0, input_bytes_per_s=1.5e6, rates={HOME: 1000.0, "vm-1": 1000.0}
    )
    found = alternatives(slot, site, Standing(("vm-1",), 0, site.boot_s), latency_s=2.0, sent_part=0.5)
    assert found is not None
    one = next(option.usd for option in found.options if option.vms == 1)
    assert one == pytest.approx(0.01 + 500 * 100 * 500 / 1e9)
    assert found.rules["rate"] == "1 VMs: 1500 events/s at 1000 an engine need 2"
    assert "cpu" not in found.rules


def test_a_decision_by_equation_1_tells_the_rules_and_the_options() -> None:
    checked = Checked(scheduler_settings())
    checked.slot(0.5, input_rate=500.0, rates={HOME: 1000.0})
    (decision,) = checked.scheduler.last_decisions
    assert set(decision.rules) == {"rate", "queueing"}
    assert [option.vms for option in decision.options] == [0, 1]
    assert decision.advice.options == ()
