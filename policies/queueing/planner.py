"""From times between events to a degree: the workflow of Figure 3 of Mayer et al.

Each time slice is classified. Its mean, and the other parameters of its distribution, are forecast a time horizon
ahead. The profile gives the time per event at that load, and queueing theory the number of instances.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from policies.arrays import Array
from policies.queueing.classify import classify
from policies.queueing.degree import BufferGoal, Degree, optimal_degree
from policies.queueing.distributions import Deterministic, Distribution, Exponential, Normal, Pareto, Uniform
from policies.queueing.forecasts import naive
from policies.queueing.profile import OperatorProfile
from policies.queueing.refined import refined

RateForecaster = Callable[[list[float], int], Array]
"""Maps a series of equally long slices, and a number of slices ahead, to that many values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerSettings:
    """The planner's settings.

    Attributes:
        goal: BL and P_required.
        profile: processing times by load.
        most: greatest number of instances.
        ahead: slices until an instance that is ordered now is live: TH / sfreq, rounded up.
        slices: how many past slices are kept for forecasts.
    """

    goal: BufferGoal
    profile: OperatorProfile
    most: int
    ahead: int
    slices: int = 2048

    def __post_init__(self) -> None:
        if min(self.most, self.ahead, self.slices) < 1:
            raise ValueError(f"the planner needs an instance, a slice ahead and one behind: {self}")


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for a time horizon ahead.

    Attributes:
        degree: the optimal degree.
        workload: the forecast times between events.
        accepted: whether the last slice fits the assumed kind of distribution.
        profiled: whether such a high load was profiled.
        why: the reason as a sentence.
    """

    degree: Degree
    workload: Distribution
    accepted: bool
    profiled: bool
    why: str


class QueueingPlanner:
    """Observes slices of times between events and returns how many instances are wanted.

    Args:
        settings: its settings.
        forecast: how a slice's mean is forecast; naive by default, as in the paper's evaluation.
        rng: if given, degrees are refined by simulation, which takes tenths of a second: see ``refined``.
    """

    def __init__(
        self, settings: PlannerSettings, forecast: RateForecaster = naive, rng: np.random.Generator | None = None
    ) -> None:
        self._settings = settings
        self._forecast = forecast
        self._rng = rng
        self._means_s: deque[float] = deque(maxlen=settings.slices)

    def decide(self, between_s: Array, current: int) -> Plan:
        """Add the last slice and return the plan.

        Args:
            between_s: times between the slice's events, shape (n,).
            current: instances now, where the search starts.

        Raises:
            ValueError: there are too few events to find a distribution: make the slices longer.
        """
        settings = self._settings
        classified = classify(between_s)
        self._means_s.append(float(between_s.mean()))
        ahead = float(self._forecast(list(self._means_s), settings.ahead)[-1])
        # A forecast may be impossible; a mean must be positive, otherwise the forecast is ignored.
        mean_s = ahead if ahead > 0 else self._means_s[-1]
        workload = scaled(classified.best, mean_s / float(between_s.mean()))
        rate = 1.0 / mean_s
        service, profiled = settings.profile.service(rate)
        degree = optimal_degree(workload, service, settings.goal, current=current, most=settings.most)
        if self._rng is not None:
            degree = refined(degree, workload, service, settings.goal, self._rng)
        return Plan(degree, workload, classified.accepted, profiled, _why(degree, workload, rate, settings))


def scaled(distribution: Distribution, factor: float) -> Distribution:
    """Return the distribution of times that are all longer by this factor, with the same shape."""
    match distribution:
        case Exponential() | Deterministic():
            return replace(distribution, mean_s=distribution.mean_s * factor)
        case Normal():
            return Normal(distribution.mean_s * factor, distribution.std_s * factor)
        case Uniform():
            return Uniform(distribution.low_s * factor, distribution.high_s * factor)
        case Pareto():
            return Pareto(distribution.least_s * factor, distribution.shape)
    raise ValueError(f"it is not known how to scale {distribution}")


def _why(degree: Degree, workload: Distribution, rate: float, settings: PlannerSettings) -> str:
    goal = settings.goal
    kept = "" if degree.kept else f", which is not enough: {settings.most} is the most"
    part = f"{degree.probability:.1%} of the time"
    return (
        f"{workload.name} times between events, {rate:.4g} events/s forecast: as {degree.queue.model}, "
        f"{degree.instances} instances hold at most {goal.limit_events} events {part}{kept}"
    )
