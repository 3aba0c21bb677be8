"""How long a plan blocks the event loop: made on the loop itself, or on the gateway's thread.

On the loop it blocks for the whole plan. On a thread, the interpreter's lock changes hands between any two steps once a
turn is over (``gateway.fleet.fitting``), so the loop waits for at most one turn and one step. A step is the time
between two events of the interpreter's profile: calls and returns, also of numpy's functions. CPU time is measured,
since others use the machine; work without the lock, like most of numpy's, is included.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from gateway.fleet.fitting import TURN_S
from planning.document import table
from planning.timing import HISTORY, STATES, WINDOW_S
from policies.advice import Advice, Seen, Site, StandingVm
from policies.gaussian.features import DAY_S
from policies.gaussian.forecaster import TrainingSet, train
from policies.money.billing import BillingTerms
from policies.planning.planner import Planner, PlannerOptions
from policies.planning.windows import Window
from policies.signals import QuerySlot

ROUNDS = 60
WINDOWS = 60
FLEET = 35
"""The number of VMs; it gives as many states as in the section on planning time."""

EVENT_S = 0.1
JUDGED = 40


class Asked:
    """A planner that must make a new plan each time, since the fleet never matches the planned one."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(1)
        self._now_s = 1.7e9
        terms = BillingTerms(3600.0, 3600.0, 1.0, 0.0)
        site = Site(max_vms=STATES - 1, terms=terms, boot_s=WINDOW_S / 2, slot_s=WINDOW_S)
        options = PlannerOptions(window_s=WINDOW_S, windows=WINDOWS, history=HISTORY, cycles_s=(DAY_S,))
        self._planner = Planner(options, site, latency_s=WINDOW_S)
        for _ in range(HISTORY):
            self.answer()
        order = self._planner.fit_order()
        if order is None:
            raise ValueError("the planner does not want to be trained after so long a history")
        self._planner.fitted(tuple(train(each) for each in order.training if isinstance(each, TrainingSet)), "")
        for _ in range(JUDGED):
            advice = self.answer()
        if "a new plan" not in advice.why:
            raise ValueError(f"the planner does not plan: {advice.why}")

    def answer(self) -> Advice:
        """Simulate a window, with a new plan."""
        self._now_s += WINDOW_S
        rate = max(400 - 300 * np.cos(2 * np.pi * self._now_s / DAY_S) + 30 * self._rng.normal(), 0.0)
        vms = tuple(StandingVm(0.0, WINDOW_S * (1 + each % 6)) for each in range(FLEET))
        slot = QuerySlot(query="q", latency_s=0.0, input_rate=rate)
        seen = Seen(at_s=self._now_s, wall_s=self._now_s, slot=slot, boot_s=WINDOW_S / 2, vms=vms)
        return self._planner.decide(Window(self._now_s, rate, EVENT_S, (rate,)), seen)


def report() -> str:
    """Return the table."""
    asked = Asked()
    plans_ms, steps_ms = zip(*(_plan_and_longest_step_ms(asked) for _ in range(ROUNDS)), strict=True)
    rows = [
        (name, *(f"{np.percentile(each, part):.2f}" for part in (50, 99)))
        for name, each in (("the whole plan", plans_ms), ("its longest step", steps_ms))
    ]
    told = f"CPU milliseconds; {HISTORY} observations, {WINDOWS} windows, {STATES} states, {ROUNDS} plans."
    turn = f"A turn is {1e3 * TURN_S:g} ms."
    return f"{told} {turn}\n\n{table(('', 'median', '99th percentile'), rows)}"


def _plan_and_longest_step_ms(asked: Asked) -> tuple[float, float]:
    """Return how long a plan takes, and the longest step of another one."""
    began_s = time.thread_time()
    asked.answer()
    plan_s = time.thread_time() - began_s
    longest_s, before_s = 0.0, time.thread_time()

    def step(*_: object) -> None:
        nonlocal longest_s, before_s
        longest_s = max(longest_s, time.thread_time() - before_s)
        before_s = time.thread_time()

    sys.setprofile(step)
    try:
        asked.answer()
    finally:
        sys.setprofile(None)
    return 1e3 * plan_s, 1e3 * longest_s
