"""The planner: Gaussian processes forecast, and a path through the state graph decides (Zacheilas et al., III).

While the path is followed, nothing is planned. An uncertain cost or a wrong forecast rejects the rest of the path
(Algorithm 1), and so does a fleet that differs from what the path ordered. Equation 1 of ESM decides until there is a
model, and while the model's forecasts are worse than those of the plain rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from policies.advice import ENGINES_HOME, Advice, Expected, FitOrder, Load, Option, Seen, Site
from policies.arrays import Array
from policies.gaussian.forecaster import Forecast, Trained
from policies.money.pricing import MISS_FACTOR, late_usd, priced
from policies.planning.elasticity import PathWalker, RejectionSettings
from policies.planning.learned import Learned, LearningOptions
from policies.planning.stategraph import CostSettings, Horizon, Path, RentedVm, costs, shortest_path
from policies.planning.windows import Window, WindowedPolicy
from policies.queueing.loadtable import LoadTable

_STATES_MOST = 64
"""The planner considers at most this many VMs more than there are: its cost grows with their number squared."""

_CHANGE_FACTOR = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOptions:
    """The settings of the planner.

    Attributes:
        window_s: length of a window.
        windows: how many future windows are planned.
        history: how many past windows are used for learning.
        cycles_s: cycles to look for, besides time of day and day of week.
        miss_usd: MC, the worth of an event that is not processed in its window; None: the price of 20 events in the
            cloud, with their traffic.
        change_usd: RC, the worth of a change of the number of VMs; None: a tenth of a billing period.
        most_uncertainty: theta_1.
        most_error: theta_2.
    """

    window_s: float
    windows: int
    history: int = 500
    cycles_s: tuple[float, ...] = (86_400.0,)
    miss_usd: float | None = None
    change_usd: float | None = None
    most_uncertainty: float = 1.0
    most_error: float = 0.1


class Planner(WindowedPolicy):
    """Plans for one query.

    Args:
        options: its settings.
        site: the settings that all queries share.
        latency_s: the promised latency.
    """

    name = "planner"

    def __init__(self, options: PlannerOptions, site: Site, latency_s: float) -> None:
        super().__init__(site, options.window_s, latency_s)
        self._options = options
        self._boot = self._configured_boot = self._boot_windows(site.boot_s)
        self._windows = max(options.windows, self._boot + 2)
        self._learned = Learned(
            LearningOptions(
                window_s=self.window_s,
                history=options.history,
                cycles_s=options.cycles_s,
                lead=self._boot + 1,
                late_factor=MISS_FACTOR - 1,
                spare_engines=1.0,  # VMs are whole: the last one is rented for a part of its power
                busy_lead=self._windows // 2,
            )
        )
        self._period = math.ceil(site.terms.period_s / self.window_s - 1e-9)
        self._terms = priced(site.terms)
        unit_usd = self._terms.time_usd(self.window_s)
        self._walker = PathWalker(
            RejectionSettings(
                most_uncertainty=options.most_uncertainty, most_error=options.most_error, unit_usd=unit_usd
            )
        )
        self._path: Path | None = None
        self._input_ahead = np.zeros(0)
        self._at = 0
        self._asked = 0
        self._options_then: tuple[Option, ...] = ()
        self._quiet = False

    def advise(self, seen: Seen) -> Advice:
        """See ``VmPolicy.advise``."""
        booting = len(seen.vms) > seen.serving
        self._quiet = seen.slot.latency_s < self.latency_s and not booting
        return super().advise(seen)

    def fit_order(self) -> FitOrder | None:
        """See ``VmPolicy.fit_order``."""
        return self._learned.fit_order(quiet=self._quiet)

    def fitted(self, models: tuple[Trained | LoadTable, ...], trouble: str) -> None:
        """See ``VmPolicy.fitted``."""
        self._learned.fitted(tuple(each for each in models if isinstance(each, Trained)), trouble)

    def decide(self, window: Window, seen: Seen) -> Advice:
        """See ``WindowedPolicy.decide``."""
        learned, other_boot = self._learned, self._other_boot(seen.boot_s)
        learned.observe(window.wall_s, window.input_rate, ENGINES_HOME + seen.serving, window.event_s)
        rejected = self._walker.observe(window.input_rate)
        expected = learned.expected(window.wall_s) if learned.ready else None
        if not learned.trusted or window.event_s is None:
            self._path = None
            now = None if window.event_s is None else window.input_rate * window.event_s
            load = None if now is None else Load(now, now, self.times.home_engines)
            return Advice(why=f"planner: {learned.why}", expected=expected, load=load)
        replan = other_boot or self._why_new_path(seen, rejected)
        if replan:
            self._plan(window.wall_s, window.event_s, seen)
        path = self._path
        assert path is not None, "a path is there once one was planned"
        move = self._walker.advance()
        soon = slice(self._at, self._at + self._boot + 1)
        wanted, kept = path.states[soon][-1], max(path.states[soon])
        ahead = self._at + self._boot
        rising_to = max(path.states[ahead : ahead + self._period])
        loads = self._input_ahead[soon] * window.event_s
        load = Load(float(loads[-1]), float(loads.max()), self.times.home_engines)
        self._at += 1
        self._asked = max(wanted, len(seen.vms))
        how = f"a new plan ({replan})" if replan else "as planned"
        doubt = f"; the rest will be planned anew: {move.rejected}" if move.rejected else ""
        why = f"planner: {wanted} VMs, {how}: {_forecast(expected)}{doubt}"
        return Advice(
            wanted=wanted,
            kept=kept,
            why=why,
            expected=expected,
            options=self._options_then,
            load=load,
            rising_to=rising_to,
        )

    def _boot_windows(self, boot_s: float) -> int:
        """Return how many windows pass until a VM that is ordered now serves from the beginning of a window."""
        return math.ceil(boot_s / self.window_s - 1e-9)

    def _other_boot(self, boot_s: float) -> str:
        """Plan for this boot time from now on; return that it is another one, or nothing.

        The horizon is longer by as much as VMs boot longer than configured.
        """
        boot = self._boot_windows(boot_s)
        if boot == self._boot:
            return ""
        self._boot = boot
        self._windows = max(self._options.windows + max(0, boot - self._configured_boot), boot + 2)
        self._learned.look_ahead(boot + 1, self._windows // 2)
        return f"a VM is now expected to boot in {boot_s:.3g} s"

    def _why_new_path(self, seen: Seen, rejected: str) -> str:
        """Return why the path is not followed any further; empty if it is."""
        if rejected:
            return rejected
        if self._path is None:
            return "there was none"
        if self._walker.needs_path or self._at + self._boot >= len(self._path.states):
            return "the last one ends"
        if len(seen.vms) != self._asked:
            return f"{len(seen.vms)} VMs are there, not {self._asked}"
        return ""

    def _plan(self, wall_s: float, event_s: float, seen: Seen) -> None:
        """Find the cheapest path, and the cost of other numbers of VMs at the time when one can be ready."""
        fleet = [RentedVm(vm.ready_in_s, vm.paid_for_s) for vm in seen.vms]
        states = 1 + max(min(self.site.max_vms, len(fleet) + _STATES_MOST), len(fleet))
        ahead = self._learned.input_ahead(wall_s, self._windows)
        horizon = self._horizon(ahead, wall_s, event_s, seen, states)
        found = costs(horizon, self._cost_settings(event_s, seen), fleet)
        at = min(self._boot, self._windows - 1)
        self._path, self._at = shortest_path(found, min(seen.serving, states - 1), at), 0
        self._walker.adopt(self._path, ahead.mean)
        self._input_ahead = ahead.mean
        self._options_then = _alternatives(self._path, at)

    def _horizon(self, ahead: Forecast, wall_s: float, event_s: float, seen: Seen, states: int) -> Horizon:
        middle_s = wall_s + self.window_s * self._windows / 2
        busy, busy_std = self._learned.busy_ahead(middle_s, ENGINES_HOME + np.arange(states, dtype=np.float64), event_s)
        shape = (self._windows, states)
        return Horizon(
            window_s=self.window_s,
            input_rate=ahead.mean + self._owed(ahead.mean, event_s, seen),
            input_std=ahead.std,
            busy_s=np.broadcast_to(busy, shape),
            busy_std_s=np.broadcast_to(busy_std, shape),
        )

    def _owed(self, rate: Array, event_s: float, seen: Seen) -> Array:
        """Return how much of the waiting events is processed, in events per second, shape (windows,).

        Until a VM that is ordered now serves, the present engines use their spare capacity. The rest is spread over the
        time for which its first block is paid anyway.
        """
        owed, left = np.zeros(self._windows), seen.slot.backlog_events / self.window_s
        for window in range(self._boot):
            serving = sum(vm.ready_in_s <= window * self.window_s for vm in seen.vms)
            spare = (self.times.home_engines + serving) / event_s - float(rate[window])
            owed[window] = min(left, max(spare, 0.0))
            left -= owed[window]
        paid = max(1, int(self._terms.first_block_s / self.window_s) - self._boot)
        last = min(self._windows, self._boot + paid)
        owed[self._boot : last] = left / (last - self._boot)
        return owed

    def _cost_settings(self, event_s: float, seen: Seen) -> CostSettings:
        options, terms = self._options, self._terms
        slot = seen.slot
        event_bytes = slot.input_bytes_per_s / slot.input_rate if slot.input_rate > 0 else 0.0
        sent_bytes = event_bytes * seen.sent_part
        return CostSettings(
            miss_usd=late_usd(options.miss_usd, terms, event_s, sent_bytes),
            rebalance_usd=_CHANGE_FACTOR * terms.time_usd(terms.period_s)
            if options.change_usd is None
            else options.change_usd,
            terms=terms,
            boot_s=seen.boot_s,
            home_engines=self.times.home_engines,
            sent_bytes_per_event=sent_bytes,
        )


def _alternatives(path: Path, at: int) -> tuple[Option, ...]:
    """Return the cost of as many VMs as planned, one more, one fewer, or none, once a VM can be ready."""
    chosen, usd = path.states[at], path.alternatives_usd
    states = sorted({0, chosen - 1, chosen, chosen + 1} & set(range(len(usd))))
    return tuple(Option(state, usd[state]) for state in states if math.isfinite(usd[state]))


def _forecast(expected: Expected | None) -> str:
    if expected is None:
        return "no forecast"
    return f"{expected.rate:.4g} events/s in {expected.in_s:.3g} s ({expected.low:.4g} to {expected.high:.4g})"
