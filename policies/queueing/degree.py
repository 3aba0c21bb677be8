"""The least number of instances that keeps a buffer limit with a required probability (section V-C, Figure 5).

Formulas exist for M/M/c and M/D/c only, so other distributions are replaced by ones that fill the buffer more. The
paper's method compares distribution functions: shorter times between events, longer times to process one. That is
always safe, but it ignores how regular times are, and can give three times too many instances. So there is a second
method for times that are new better than used in expectation (here: deterministic, uniform, normal): an exponential
time of the same mean, which varies more. That this makes longer queues is proven for one instance (Stoyan, Comparison
Methods for Queues, chapter 5) and, for more, supported by the simulations among the tests. The smallest degree of all
methods counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from policies.queueing.distributions import Deterministic, Distribution, Exponential, Normal, Uniform
from policies.queueing.stationary import mdc_within, mmc_within

CONSERVED = 0.99
"""Up to this probability the distribution functions are compared, as in section VI-C."""

_GRID = np.linspace(0.0, CONSERVED, 2001)[1:]


class Model(StrEnum):
    """Kendall's notation of a queue."""

    MMC = "M/M/c"
    MDC = "M/D/c"


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue with formulas.

    Attributes:
        model: what kind.
        rate: events per second.
        busy_s: mean time that an instance is busy with one event.
    """

    model: Model
    rate: float
    busy_s: float

    def within(self, instances: int, limit: int) -> float:
        """Return P(Q <= limit), with the events being processed."""
        formula = mmc_within if self.model is Model.MMC else mdc_within
        return formula(self.rate, self.busy_s, instances, limit)


@dataclass(frozen=True, slots=True)
class BufferGoal:
    """The user's goal.

    Attributes:
        limit_events: BL, the most events in the buffer; those being processed count.
        probability: P_required, the part of the time for which the limit must hold.

    Raises:
        ValueError: a value is impossible.
    """

    limit_events: int
    probability: float

    def __post_init__(self) -> None:
        if self.limit_events < 0 or not 0 < self.probability < 1:
            raise ValueError(f"a limit of {self.limit_events} events with probability {self.probability:g} is no goal")


@dataclass(frozen=True, slots=True)
class Degree:
    """The answer.

    Attributes:
        instances: the optimal degree; the greatest allowed if even that is too small.
        kept: whether that keeps the goal.
        probability: P(Q <= BL) at that degree.
        queue: the model that gave it.
    """

    instances: int
    kept: bool
    probability: float
    queue: Queue


def exponential_below(workload: Distribution) -> float:
    """Return the mean of the slowest exponential workload whose cdf is nowhere below this one's up to ``CONSERVED``.

    1 - exp(-t / m) >= F(t) means m <= -t / log(1 - F(t)): the minimum of it over all t.
    """
    at_s = np.maximum(workload.quantile(_GRID), 0.0)
    return float((at_s / -np.log1p(-np.minimum(workload.cdf(at_s), CONSERVED))).min())


def conservative_queues(workload: Distribution, service: Distribution) -> tuple[Queue, ...]:
    """Return queues with formulas whose buffers are certainly no emptier; only exact ones where they exist.

    Args:
        workload: times between events.
        service: times to process one.

    Raises:
        ValueError: the time between events or the time to process one may be 0.
    """
    workload_means = _workload_means(workload)
    queues = tuple(
        Queue(model, 1.0 / mean_s, busy_s)
        for mean_s, (model, busy_s) in itertools.product(workload_means, _services(service))
        if mean_s > 0 and busy_s > 0
    )
    if not queues:
        raise ValueError(f"no queue bounds {workload} processed in {service}: times of 0 s are too likely")
    return queues


def calculate_degree(
    within: Callable[[int], float], goal: BufferGoal, *, current: int, most: int
) -> tuple[int, float, bool]:
    """Return the least number of instances that keeps the goal (Figure 5).

    As in the paper, the search starts at the current degree and goes up while the degree is too small, down while it is
    enough. Q = 0 counts as kept, which line 4 of the figure leaves out, against the text; and there is a least and a
    greatest degree.

    Args:
        within: P(Q <= BL) for a number of instances; never less for more instances.
        goal: the limit to keep.
        current: degree to start from.
        most: greatest degree.

    Returns:
        The degree, P(Q <= BL) there, and whether that is enough.
    """
    degree = min(max(current, 1), most)
    probability = within(degree)
    if probability < goal.probability:
        while probability < goal.probability and degree < most:
            degree += 1
            probability = within(degree)
        return degree, probability, probability >= goal.probability
    while degree > 1 and (fewer := within(degree - 1)) >= goal.probability:
        degree, probability = degree - 1, fewer
    return degree, probability, True


def optimal_degree(
    workload: Distribution, service: Distribution, goal: BufferGoal, *, current: int, most: int
) -> Degree:
    """Return the smallest degree with which any conservative queue keeps the goal.

    Args:
        workload: predicted times between events.
        service: times to process one, from the operator's profile.
        goal: the limit to keep.
        current: degree now.
        most: greatest degree.
    """
    if most < 1:
        raise ValueError(f"at most {most} instances cannot process anything")
    found = []
    for queue in conservative_queues(workload, service):
        instances, probability, kept = calculate_degree(
            lambda c, queue=queue: queue.within(c, goal.limit_events),  # type: ignore[misc]
            goal,
            current=current,
            most=most,
        )
        found.append(Degree(instances, kept, probability, queue))
    return min(found, key=lambda degree: (not degree.kept, degree.instances, -degree.probability))


def _workload_means(workload: Distribution) -> list[float]:
    if isinstance(workload, Exponential):
        return [workload.mean_s]
    means = [exponential_below(workload)]
    if _is_regular(workload):
        means.append(workload.mean_s)
    return means


def _services(service: Distribution) -> list[tuple[Model, float]]:
    if isinstance(service, Exponential):
        return [(Model.MMC, service.mean_s)]
    longest = [(Model.MDC, float(service.quantile(np.array([CONSERVED]))[0]))]
    if isinstance(service, Deterministic) or not _is_regular(service):
        return longest
    return [*longest, (Model.MMC, service.mean_s)]


def _is_regular(times: Distribution) -> bool:
    """Return whether times are new better than used in expectation; none may reach far below 0, where they are cut."""
    if isinstance(times, Normal):
        return times.mean_s >= 3 * times.std_s
    return isinstance(times, Deterministic | Uniform) and math.isfinite(times.mean_s)
