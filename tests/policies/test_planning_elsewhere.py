"""Policies that are asked on a thread decide the same as policies that are asked at once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from gateway.core.decide.scheduler import Scheduler
from gateway.fleet.fitting import Fitter
from policies.choose import Policies
from policies.planning.plain import StaticOptions
from policies.planning.planner import PlannerOptions
from policies.planning.queueing import QueueingOptions
from policies.planning.windows import WindowedPolicy
from policies.signals import Ask, Fitted, QuerySlot, SlotAnswered, SlotEnded, StartVm
from tests.policies.policy_data import Checked, query_settings, scheduler_settings
from tests.policies.policy_play import Play, bursts

if TYPE_CHECKING:
    from policies.advice import Advice, PolicyAnswer, Seen
    from policies.choose import PolicyOptions

BURSTS = bursts(every_s=30.0, for_s=10.0, low=400.0, high=1800.0)
END_S = 120.0


class Elsewhere(Play):
    """A gateway in a fluid whose slots end as the daemon's do."""

    def __init__(self, policy: PolicyOptions, runner: asyncio.Runner) -> None:
        super().__init__(policy, BURSTS)
        self._runner = runner
        self._fitter = Fitter(lambda _: None)

    def _answers(self, ask: Ask) -> tuple[PolicyAnswer, ...]:
        return self._runner.run(self._fitter.answer(ask, self.policies))

    def close(self) -> None:
        self._runner.run(self._fitter.close())


@pytest.mark.parametrize(
    "options",
    [
        PlannerOptions(window_s=2.0, windows=8, history=60, cycles_s=(30.0,)),
        QueueingOptions(window_s=2.0),
    ],
    ids=["planner", "queueing"],
)
def test_decisions_are_the_same_and_made_on_a_thread(options: PolicyOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Play(options, BURSTS).until(END_S)
    threads: set[str] = set()
    advise = WindowedPolicy.advise

    def noted(policy: WindowedPolicy, seen: Seen) -> Advice:
        threads.add(threading.current_thread().name)
        return advise(policy, seen)

    monkeypatch.setattr(WindowedPolicy, "advise", noted)
    with asyncio.Runner() as runner:
        play = Elsewhere(options, runner)
        there = play.until(END_S)
        play.close()
    assert threads == {"planning_0"}
    assert there.decisions == here.decisions
    assert (there.started, there.ended_s, there.usd) == (here.started, here.ended_s, here.usd)
    assert any(decision.advice.wanted for decision in here.decisions)  # it was no plan that was never made
    assert [(fit.query, len(fit.training)) for fit in there.fits] == [
        (fit.query, len(fit.training)) for fit in here.fits
    ]


def test_models_that_nobody_asked_for_are_refused() -> None:
    checked = Checked()
    with pytest.raises(ValueError, match="reactive never asked for 0 models"):
        checked.tell(Fitted, query="q", models=())


def test_a_slot_whose_policies_were_asked_is_measured_once() -> None:
    settings = scheduler_settings(query_settings(policy=StaticOptions(0)))
    scheduler, policies = Scheduler(settings), Policies(settings.queries, settings.site)
    slot = QuerySlot(query="q", latency_s=0.1, raw_bytes={"vm-1": 1000}, sent_bytes={"vm-1": 500})
    (ask,) = scheduler.handle(SlotEnded(event_id="e", at_s=101.0, queries=(slot,)))
    assert isinstance(ask, Ask)
    answers = policies.answer(ask)
    assert scheduler.handle(SlotAnswered(event_id="f", at_s=101.0, turn=1, answers=answers)) == []
    (query,) = scheduler.queries.values()
    assert (query.raw_bytes, query.sent_bytes) == (1000, 500)


def test_a_slot_is_judged_once_its_question_is_answered_and_once_only() -> None:
    settings = scheduler_settings(query_settings(policy=StaticOptions(1)))
    scheduler, policies = Scheduler(settings), Policies(settings.queries, settings.site)
    slot = QuerySlot(query="q", latency_s=0.1)
    early = SlotAnswered(event_id="e", at_s=101.0, turn=1, answers=())
    with pytest.raises(ValueError, match="question 1 is answered, but question 0 was the last"):
        scheduler.handle(early)
    (ask,) = scheduler.handle(SlotEnded(event_id="e1", at_s=101.0, queries=(slot,)))
    assert isinstance(ask, Ask)
    assert scheduler.last_decisions == ()
    with pytest.raises(ValueError, match="e2 ends a slot before the policies have answered"):
        scheduler.handle(SlotEnded(event_id="e2", at_s=102.0, queries=(slot,)))
    answer = SlotAnswered(event_id="e3", at_s=102.0, turn=1, answers=policies.answer(ask))
    (start,) = scheduler.handle(answer)
    assert isinstance(start, StartVm)
    with pytest.raises(ValueError, match="question 1 is answered, but question 1 was the last and is answered"):
        scheduler.handle(answer)
    with pytest.raises(ValueError, match="asked 1 times, and question 1 came next"):
        policies.answer(ask)
