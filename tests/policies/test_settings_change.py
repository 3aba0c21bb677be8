"""Settings that change while the scheduler works."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.core.decide.scheduler import Scheduler
from gateway.views.why.eventlog import LoggedEvent, replay
from gateway.views.why.plainjson import dumps, loads
from policies.advice import Advice
from policies.choose import Policies
from policies.money.ledger import Budget
from policies.planning.plain import StaticOptions
from policies.signals import HOME, Ask, Fitted, QueryOpened, QuerySlot, SlotAnswered, SlotEnded
from policies.steering import SettingsChanged
from policies.switching.query import QuerySettings
from policies.vms.vm import VmState
from tests.policies.policy_data import (
    SWITCHING,
    Checked,
    query_settings,
    scheduler_settings,
    sending,
    states,
)


def change(checked: Checked, *queries: QuerySettings, **fields: Any) -> None:
    said = {"max_vms": 2, "budget": Budget(), **fields}
    assert checked.tell(SettingsChanged, queries=queries or (query_settings(),), **said) == []


def test_thresholds_count_from_the_next_slot_on() -> None:
    checked = Checked()
    change(checked, query_settings(switching=replace(SWITCHING, start_vm_above_s=9.0)))
    assert [checked.slot(5.0) for _ in range(4)] == [[]] * 4
    change(checked)
    assert [checked.slot(5.0) for _ in range(2)] == [[], [("start", "vm-1")]]


def test_a_query_keeps_its_route_until_the_new_share_counts() -> None:
    checked = sending()
    change(checked, query_settings(share=0.25))
    assert checked.scheduler.routes["q"] == ((HOME, 0.5), ("vm-1", 0.5))
    assert checked.slot(2.5) == [("route", "q", {HOME: 0.75, "vm-1": 0.25})]


def test_what_its_plan_says_is_kept() -> None:
    checked = Checked()
    checked.tell(QueryOpened, query="q", switchable=False, reason="it sorts")
    change(checked, query_settings(latency_qos_s=1.0))
    assert checked.scheduler.queries["q"].why_home == "it sorts"


def test_a_query_that_is_removed_leaves_its_vm_to_the_others() -> None:
    checked = sending()
    change(checked, query_settings("other"))
    assert states(checked) == [VmState.IDLE]
    assert list(checked.scheduler.routes) == ["other"]
    assert checked.slots(QuerySlot(query="other", latency_s=2.5)) == [("route", "other", {HOME: 0.5, "vm-1": 0.5})]
    with pytest.raises(ValueError, match="query 'q' does not exist; the queries are other"):
        checked.slot(1.0)


def test_fewer_vms_end_none_but_no_other_is_launched() -> None:
    checked = sending()
    change(checked, max_vms=1)
    assert [checked.slot(9.0) for _ in range(5)] == [[]] * 5
    change(checked, max_vms=2)
    assert ("start", "vm-2") in [each for _ in range(3) for each in checked.slot(9.0)]


def test_another_budget_counts_what_was_spent_before() -> None:
    checked = sending()
    spent_usd = sum(part.usd for held in checked.scheduler.ledger.reserved for part in held.parts)
    assert spent_usd > 0
    change(checked, budget=Budget(usd_per_day=spent_usd))
    checked.slot(9.0)
    assert [checked.slot(9.0) for _ in range(3)] == [[]] * 3
    assert "the budget has no room for a VM" in checked.scheduler.last_decisions[0].verdict


def planned(*names: str, vms: int = 1) -> tuple[QuerySettings, ...]:
    return tuple(query_settings(name, policy=StaticOptions(vms)) for name in names)


def asked(checked: Checked, *names: str) -> Ask:
    event = SlotEnded(event_id="s", at_s=checked.now_s, queries=tuple(QuerySlot(query=n, latency_s=0.0) for n in names))
    (ask,) = checked.scheduler.handle(event)
    assert isinstance(ask, Ask)
    return ask


def test_only_changed_policies_begin_anew() -> None:
    settings = scheduler_settings(*planned("a", "b"), max_vms=5)
    checked, policies = Checked(settings), Policies(settings.queries, settings.site)
    ask = asked(checked, "a", "b")
    checked.tell(SlotAnswered, turn=ask.turn, answers=policies.answer(ask))
    kept = checked.scheduler.last_decisions[1].advice
    assert kept.wanted == 1
    now = (*planned("a", vms=3), *planned("b", "c"))
    change(checked, *now, max_vms=5)
    policies.change(now, settings.site)
    ask = asked(checked, "a", "b", "c")
    answers = {answer.query: answer.advice for answer in policies.answer(ask)}
    assert {name: advice and advice.wanted for name, advice in answers.items()} == {"a": 3, "b": None, "c": 1}, (
        "b: no news"
    )
    checked.tell(SlotAnswered, turn=ask.turn, answers=[])
    of = {decision.query: decision.advice for decision in checked.scheduler.last_decisions}
    assert of == {"a": Advice(), "b": kept, "c": Advice()}


def test_settings_do_not_change_while_policies_are_asked() -> None:
    checked = Checked(scheduler_settings(*planned("q")))
    asked(checked, "q")
    with pytest.raises(ValueError, match="between a question to the policies and their answers"):
        change(checked)


def test_a_training_for_a_policy_that_is_gone_counts_for_nothing() -> None:
    checked = Checked(scheduler_settings(*planned("q")))
    demand = checked.scheduler._demand  # noqa: SLF001 - what is under way is nowhere else
    demand._fitting.add("q")  # noqa: SLF001
    change(checked)
    assert checked.tell(Fitted, query="q", models=(), trouble="") == []
    with pytest.raises(ValueError, match="never asked"):
        checked.tell(Fitted, query="q", models=(), trouble="")


def test_a_log_with_a_change_replays_to_the_same_commands() -> None:
    settings = scheduler_settings()
    scheduler, steps = Scheduler(settings), []
    low = query_settings(switching=replace(SWITCHING, start_vm_above_s=1.0, send_above_s=0.5), policy=None)
    events = [
        SlotEnded(event_id="e1", at_s=101.0, queries=(QuerySlot(query="q", latency_s=1.5),)),
        SettingsChanged(event_id="e2", at_s=101.5, queries=(low,), max_vms=1, budget=Budget(usd_per_day=5.0)),
        SlotEnded(event_id="e3", at_s=102.0, queries=(QuerySlot(query="q", latency_s=1.5),)),
        SlotEnded(event_id="e4", at_s=103.0, queries=(QuerySlot(query="q", latency_s=1.5),)),
    ]
    for event in events:
        commands = tuple(dumps(command) for command in scheduler.handle(event))
        assert loads(dumps(event)) == event
        steps.append(LoggedEvent(loads(dumps(event)), commands))
    assert [len(step.commands) for step in steps] == [0, 0, 0, 1]
    assert replay(settings, steps).difference == ""


@pytest.mark.parametrize(
    ("latency_s", "says"),
    [
        (5.0, "stays home: a dry run; a VM would be launched: L 5.00 s >= start_vm_above 3 s"),
        (2.5, "stays home: a dry run; events would go to a VM that is ready: L 2.50 s >= send_above 2 s"),
        (0.5, "stays home: a dry run; nothing would be done: L 0.50 s < send_above 2 s"),
    ],
)
def test_a_dry_run_says_what_would_be_done_and_does_nothing(latency_s: float, says: str) -> None:
    checked = Checked(scheduler_settings(query_settings(dry_run=True)))
    assert [checked.slot(latency_s) for _ in range(5)] == [[]] * 5
    assert checked.scheduler.last_decisions[0].verdict == says


def test_a_dry_run_that_begins_brings_the_query_home() -> None:
    checked = sending()
    change(checked, query_settings(dry_run=True))
    assert checked.slot(5.0) == [("route", "q", {HOME: 1.0})]
