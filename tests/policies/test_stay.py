"""A query that was moved whole to a VM goes back if home completed more of its events."""

from __future__ import annotations

import pytest

from policies.signals import HOME, QuerySlot
from policies.switching.stay import Stay
from tests.policies.policy_data import ALL_HOME, Checked, idle, query_settings

REASON = "vm-1 completes 90 of its events/s, and home completed 165/s"


def slot(there_per_s: float, latency_s: float = 4.0) -> QuerySlot:
    rates = {HOME: 165.0, "vm-1": there_per_s}
    return QuerySlot(query="q", latency_s=latency_s, rates=rates, completed_events={"vm-1": int(there_per_s)})


@pytest.mark.parametrize(
    ("there_per_s", "latency_s", "why"),
    [(90.0, 4.0, REASON), (90.0, 1.9, ""), (140.0, 4.0, ""), (300.0, 4.0, "")],
    ids=["slower and late", "slower, but not late", "nearly as fast", "faster"],
)
def test_a_vm_is_judged_after_half_a_minute_of_work(there_per_s: float, latency_s: float, why: str) -> None:
    stay = Stay(1.0)
    for _ in range(100):
        stay.observe("vm-1", QuerySlot(query="q", latency_s=9.0, rates={HOME: 165.0}), 2.0)
    for _ in range(29):
        stay.observe("vm-1", slot(there_per_s, latency_s), 2.0)
        assert not stay.why_slower()
    stay.observe("vm-1", slot(there_per_s, latency_s), 2.0)
    assert (stay.why_slower(), stay.why_slower("vm-1"), stay.why_slower("vm-2")) == (why, why, "")


def test_another_vm_is_judged_anew() -> None:
    stay = Stay(1.0)
    for _ in range(30):
        stay.observe("vm-1", slot(90.0), 2.0)
    stay.keep(("vm-1", "vm-2"))
    assert stay.why_slower() == REASON
    stay.keep(("vm-2",))
    assert not stay.why_slower()


def slow_slot(checked: Checked) -> list[tuple[object, ...]]:
    more = {"completed_events": {"vm-1": 90}, "raw_bytes": {"vm-1": 10_000}, "input_rate": 170.0}
    return checked.slot(4.0, rates={HOME: 165.0, "vm-1": 90.0}, **more)


def test_a_slower_vm_loses_the_query_and_has_no_successor_for_a_while() -> None:
    checked = idle(queries=(query_settings(mode="query"),))
    moved = ("route", "q", {HOME: 0.0, "vm-1": 1.0})
    assert checked.slot(4.0, rates={HOME: 165.0}) == [moved]
    begun_s = checked.now_s
    while not (commands := slow_slot(checked)):
        assert checked.now_s < begun_s + 40.0
    assert commands == [ALL_HOME]
    assert checked.now_s >= begun_s + 30.0
    assert REASON in checked.scheduler.last_decisions[0].verdict
    at_home = {"rates": {HOME: 165.0, "vm-1": 90.0}, "completed_events": {HOME: 165}, "input_rate": 170.0}
    while not (commands := checked.slot(4.0, **at_home)):
        assert checked.now_s < begun_s + 60.0
    assert commands == [("drain", "vm-1")], "and no second VM is launched for it"
    assert f"of no use: {REASON}" in checked.scheduler.story("vm-1")[-1].why
