"""The queueing planner in a running gateway: degrees become numbers of VMs (Mayer et al., section V).

Times between events and times of micro-batches are those that were seen; ``policies.queueing.engines`` classifies them.
Home is the first engine, with its own speed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from policies.advice import ENGINES_HOME, Advice, Expected, FitOrder, Load, Seen, Site
from policies.gaussian.forecaster import Trained
from policies.planning.learned import Learned, LearningOptions
from policies.planning.windows import Window, WindowedPolicy
from policies.queueing.adaptation import Adaptation
from policies.queueing.degree import BufferGoal
from policies.queueing.engines import EngineSearch
from policies.queueing.forecasts import naive, seasonal_naive
from policies.queueing.loadtable import LoadTable, QueueShape

if TYPE_CHECKING:
    from policies.slot import QuerySlot

ForecastBy = Literal["naive", "seasonal", "gp"]

_ERRORS = 50

_LEAST_RATE = 1e-3
"""A window without events counts as this many a second: a rate of 0 has no time between events."""

_ENGINES_MOST = 65
_FAILURES_MOST = 6
"""A table that could not be computed is ordered again after twice as many windows each time, up to this power of 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueingOptions:
    """The goal of the planner, and how it forecasts.

    Attributes:
        buffer_limit: BL, the most events that wait or are processed; None: what a VM does in the promised latency.
        probability: P_required, the part of the time for which the limit must hold.
        ahead_s: TH, how far ahead it decides; None: until a VM that is ordered now serves.
        window_s: length of a window: the paper's time slice.
        forecast: how the mean time between events is forecast.
        cycle_s: length of a season, or the cycle that the Gaussian process looks for.
        history: how many windows are remembered.
    """

    window_s: float
    buffer_limit: int | None = None
    probability: float = 0.95
    ahead_s: float | None = None
    forecast: ForecastBy = "naive"
    cycle_s: float = 86_400.0
    history: int = 500


class QueueingPolicy(WindowedPolicy):
    """Plans for one query.

    Args:
        options: its goal.
        site: the settings that all queries share.
        latency_s: the promised latency.
    """

    name = "queueing"

    def __init__(self, options: QueueingOptions, site: Site, latency_s: float) -> None:
        super().__init__(site, options.window_s, latency_s)
        self._options = options
        horizon_s = site.boot_s if options.ahead_s is None else options.ahead_s
        self._ahead = self._windows(horizon_s)
        self._season = max(1, round(options.cycle_s / self.window_s))
        kept = options.history if options.forecast != "seasonal" else max(options.history, 2 * self._season)
        self._means_s: deque[float] = deque(maxlen=kept)
        self._slots: list[QuerySlot] = []
        self._search = EngineSearch(min(ENGINES_HOME + max(1, site.max_vms), _ENGINES_MOST))
        self._shape: QueueShape | None = None
        self._ordered = self._learning = False
        self._failures = self._rest_windows = 0
        self._loads: deque[float] = deque(maxlen=self._ahead + 1)
        self._adaptation = Adaptation(ENGINES_HOME, horizon_s)
        self._band = _ErrorBand(self._ahead)
        learning = LearningOptions(
            window_s=self.window_s, history=options.history, cycles_s=(options.cycle_s,), lead=self._ahead
        )
        self._learned = Learned(learning) if options.forecast == "gp" else None
        self._quiet = False

    def advise(self, seen: Seen) -> Advice:
        """See ``VmPolicy.advise``."""
        self._quiet = seen.slot.latency_s < self.latency_s
        self._slots.append(seen.slot)
        return super().advise(seen)

    def fit_order(self) -> FitOrder | None:
        """See ``VmPolicy.fit_order``; a model of the input and a table of loads are ordered together."""
        if self._ordered:
            return None
        learning = None if self._learned is None else self._learned.fit_order(quiet=self._quiet)
        training = (*(() if learning is None else learning.training), *(() if self._shape is None else (self._shape,)))
        self._ordered, self._learning, self._shape = bool(training), learning is not None, None
        return FitOrder(training) if training else None

    def fitted(self, models: tuple[Trained | LoadTable, ...], trouble: str) -> None:
        """See ``VmPolicy.fitted``."""
        if self._learned is not None and self._learning:
            self._learned.fitted(tuple(each for each in models if isinstance(each, Trained)), trouble)
        self._ordered = self._learning = False
        self._failures = min(self._failures + 1, _FAILURES_MOST) if trouble else 0
        self._rest_windows = 2**self._failures if trouble else 0
        for each in models:
            if isinstance(each, LoadTable):
                self._search.table = each

    def decide(self, window: Window, seen: Seen) -> Advice:
        """See ``WindowedPolicy.decide``."""
        if self._options.ahead_s is None:
            self._look_ahead(seen.boot_s)
        slots, self._slots = self._slots, []
        self._search.observe(
            window.input_rate,
            _batch_events(slots),
            [slot.gaps for slot in slots if slot.gaps is not None],
            [slot.batch_times for slot in slots if slot.batch_times is not None],
        )
        self._means_s.append(1.0 / max(window.input_rate, _LEAST_RATE))
        if self._learned is not None:
            self._learned.observe(window.wall_s, window.input_rate, ENGINES_HOME + seen.serving, window.event_s)
        if window.event_s is None:
            return Advice(why="queueing: no event was processed so far, so the plain rule decides")
        ahead_s, how = self._forecast(window.wall_s)
        expected = self._expected(window, 1.0 / ahead_s)
        load, home, engines, why = self._engines(window, ahead_s, window.event_s)
        vms = engines - ENGINES_HOME
        # This number of engines means that one fewer is not enough, whatever the mean load.
        self._loads.append(max(load, home + vms - 1.0) if vms else load)
        change = self._adaptation.decide(ENGINES_HOME + min(vms, self.site.max_vms), seen.at_s)
        # A draining VM cannot be used again: VMs that are cancelled now end for good.
        self._adaptation.shut_down(change.cancel)
        wanted, kept = self._adaptation.wanted - ENGINES_HOME, self._adaptation.registered - ENGINES_HOME
        later = f", {kept - wanted} more until they are cancelled" if kept > wanted else ""
        return Advice(
            wanted=wanted,
            kept=kept,
            why=f"queueing: {wanted} VMs{later}: {why}; forecast {how}",
            expected=expected,
            options=self.site.prices(wanted),
            load=Load(self._loads[-1], max(self._loads), home),
        )

    def _windows(self, horizon_s: float) -> int:
        """Return how many windows ahead the policy decides."""
        return max(1, math.ceil(horizon_s / self.window_s - 1e-9))

    def _look_ahead(self, horizon_s: float) -> None:
        """Decide for this time ahead from now on."""
        self._adaptation.horizon_s = horizon_s
        ahead = self._windows(horizon_s)
        if ahead == self._ahead:
            return
        self._ahead = ahead
        self._loads = deque(self._loads, maxlen=ahead + 1)
        self._band.look_ahead(ahead)
        if self._learned is not None:
            self._learned.look_ahead(ahead)

    def _engines(self, window: Window, ahead_s: float, event_s: float) -> tuple[float, float, int, str]:
        """Return the load in engines of a VM's speed, what home is worth, how many engines keep the goal, and why."""
        limit = self._options.buffer_limit
        goal = BufferGoal(max(1, int(self.latency_s / event_s)) if limit is None else limit, self._options.probability)
        # The mean of n times has a standard error of 1 / sqrt(n); without it, a degree is too small every other time.
        rate = (1.0 + 1.0 / math.sqrt(max(1.0, window.input_rate * self.window_s))) / ahead_s
        busy_s = self.times.event_s_in(self._search.group(rate, goal.limit_events))
        vm_s, home_s = (event_s, event_s) if busy_s is None else busy_s
        home = vm_s / home_s
        self._rest_windows = max(0, self._rest_windows - 1)
        self._shape = None if self._rest_windows else self._search.wanted(rate, home, goal)
        if window.input_rate <= 0:
            return event_s / ahead_s, home, ENGINES_HOME, "no events came"
        found = self._search.needed(rate, vm_s, home, goal)
        return vm_s / ahead_s, home, found.engines, found.why

    def _forecast(self, wall_s: float) -> tuple[float, str]:
        """Return the mean time between events at the time that counts, and how it was forecast."""
        options, series = self._options, list(self._means_s)
        if self._learned is not None:
            if self._learned.trusted:
                rate = float(self._learned.input_ahead(wall_s, self._ahead).mean[-1])
                return 1.0 / max(rate, _LEAST_RATE), "by a Gaussian process"
            return float(naive(series, 1)[0]), f"naively ({self._learned.why})"
        if options.forecast == "seasonal":
            if len(series) >= self._season:
                return float(seasonal_naive(series, self._ahead, self._season)[-1]), "as a season ago"
            return float(naive(series, 1)[0]), f"naively: {len(series)} of {self._season} windows of a season were seen"
        return float(naive(series, 1)[0]), "naively"

    def _expected(self, window: Window, rate: float) -> Expected:
        """Return the forecast with an interval as wide as its past errors."""
        wide = self._band.observe(window.input_rate, rate)
        return Expected((self._ahead - 0.5) * self.window_s, rate, max(0.0, rate - wide), rate + wide)


def _batch_events(slots: Iterable[QuerySlot]) -> float:
    """Return the mean events of a micro-batch in some slots; 0 without one."""
    batches = events = 0
    for slot in slots:
        batches += sum(slot.batches.values())
        events += sum(slot.completed_events.get(lane, 0) for lane in slot.batches)
    return events / batches if batches else 0.0


class _ErrorBand:
    """The error of recent forecasts: its 90 % quantile."""

    def __init__(self, lead: int) -> None:
        self._pending: deque[float] = deque(maxlen=lead)
        self._errors: deque[float] = deque(maxlen=_ERRORS)

    def look_ahead(self, lead: int) -> None:
        """Judge forecasts ``lead`` windows ahead from now on; known errors still count."""
        self._pending = deque(maxlen=lead)

    def observe(self, seen: float, forecast: float) -> float:
        """Add a value and its forecast; return half the width of the interval."""
        if len(self._pending) == self._pending.maxlen:
            self._errors.append(abs(seen - self._pending[0]))
        self._pending.append(forecast)
        return float(np.quantile(self._errors, 0.9)) if self._errors else 0.0
