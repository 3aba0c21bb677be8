"""Policies that are asked on a thread decide what they decide when they are asked at once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from policy_data import Checked
from policy_play import Play, bursts

from gateway.fleet.fitting import Fitter
from policies.planning.planner import PlannerOptions
from policies.planning.queueing import QueueingOptions
from policies.planning.windows import WindowedPolicy
from policies.signals import Event, Fitted, QuerySlot, SlotEnded

if TYPE_CHECKING:
    from policies.advice import Advice, Seen
    from policies.choose import PolicyOptions

BURSTS = bursts(every_s=30.0, for_s=10.0, low=400.0, high=1800.0)
END_S = 120.0


class Elsewhere(Play):
    """A gateway in a fluid whose slots end as the daemon's do."""

    def __init__(self, policy: PolicyOptions, runner: asyncio.Runner) -> None:
        super().__init__(policy, BURSTS)
        self._runner = runner
        self._fitter = Fitter(lambda _: None)

    def _tell(self, kind: type[Event], **fields: object) -> None:
        if kind is SlotEnded:
            slot = SlotEnded(event_id="", at_s=self.fluid.now_s, **fields)  # type: ignore[arg-type]
            event = self._runner.run(self._fitter.asked(self.scheduler, slot))("e", slot.at_s)
            assert isinstance(event, SlotEnded)
            fields["answers"] = event.answers
        super()._tell(kind, **fields)

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
    assert [fit.seed for fit in there.fits] == [fit.seed for fit in here.fits]


def test_models_that_nobody_asked_for_are_refused() -> None:
    checked = Checked()
    with pytest.raises(ValueError, match="reactive never asked for 0 models"):
        checked.tell(Fitted, query="q", models=())


def test_a_slot_whose_policies_were_asked_is_measured_once() -> None:
    checked = Checked()
    slot = QuerySlot(query="q", latency_s=0.1, raw_bytes={"vm-1": 1000}, sent_bytes={"vm-1": 500})
    event = SlotEnded(event_id="e", at_s=101.0, queries=(slot,))
    assert checked.scheduler.questions(event) == ()
    checked.scheduler.handle(SlotEnded(event_id="e", at_s=101.0, queries=(slot,), answers=()))
    (query,) = checked.scheduler._queries.values()
    assert (query.raw_bytes, query.sent_bytes) == (1000, 500)
