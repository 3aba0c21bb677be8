"""How many events wait in a queue in its steady state: M/M/c and M/D/c.

``rate`` is events per second, ``busy_s`` the (mean) time an instance is busy with one, ``instances`` is c. Two counts
are distinguished: events that *wait*, and events in the *system*, which are those and the ones being processed. The
splitter of the paper keeps an event until it has been processed, so its buffer is the system.

scipy takes long to import, so it is imported where it is needed: the gateway starts without it.
"""

from __future__ import annotations

import math

import numpy as np

from policies.arrays import Array

CRITICAL = 1 - 1e-6
"""The utilisation from which a queue counts as unstable: numerical methods fail there."""

_ROOT_ERROR = 1e-12
_STATES_MOST = 1200


def utilisation(rate: float, busy_s: float, instances: int) -> float:
    """Return rho, the part of the time an instance is busy.

    Raises:
        ValueError: values that cannot be.
    """
    if not rate >= 0 or not busy_s > 0 or instances < 1:
        raise ValueError(f"no queue has {rate:g} events/s, {busy_s:g} s an event and {instances} instances")
    return rate * busy_s / instances


def erlang_c(rate: float, busy_s: float, instances: int) -> float:
    """Return the probability that an event finds all instances of an M/M/c queue busy."""
    rho = utilisation(rate, busy_s, instances)
    if rho >= CRITICAL:
        return 1.0
    blocked = 1.0  # Erlang B, by its recursion over instances: nothing overflows
    for busy in range(1, instances + 1):
        blocked = rate * busy_s * blocked / (busy + rate * busy_s * blocked)
    return blocked / (1 - rho * (1 - blocked))


def mmc_within(rate: float, busy_s: float, instances: int, limit: int) -> float:
    """Return P(at most ``limit`` events in the system) of an M/M/c queue; 0 if it is unstable."""
    rho = utilisation(rate, busy_s, instances)
    if rho >= CRITICAL:
        return 0.0
    if limit >= instances - 1:
        return 1.0 - erlang_c(rate, busy_s, instances) * rho ** (limit + 1 - instances)
    offered = rate * busy_s
    if offered == 0:
        return 1.0
    from scipy.special import gammaln

    states = np.arange(instances)
    weights = np.exp(states * math.log(offered) - gammaln(states + 1) - offered)
    free = 1.0 - erlang_c(rate, busy_s, instances)
    return float(free * weights[: limit + 1].sum() / weights.sum())


def mdc_distribution(rate: float, busy_s: float, instances: int) -> tuple[Array, float]:
    """Return the distribution of events in the system of an M/D/c queue.

    Every event in service ends within one service time and no other does, so the count n becomes max(n - c, 0) plus a
    Poisson number of arrivals; the stationary distribution solves these balance equations (Tijms 2006). Its tail is
    geometric with ratio 1 / tau, tau > 1 being the root of tau^c exp(rate busy_s (1 - tau)) = 1, so finitely many
    states are enough.

    Returns:
        Probabilities of 0, 1, ... n events, and the ratio of each further one to the one before.

    Raises:
        ValueError: the queue is unstable.
    """
    from scipy.linalg import solve

    rho = utilisation(rate, busy_s, instances)
    if rho >= CRITICAL:
        raise ValueError(f"a queue at utilisation {rho:.3f} never settles down")
    if rate == 0:
        return np.array([1.0]), 0.0
    ratio = _tail_ratio(rate * busy_s, instances)
    # The second largest root is well below the ratio: a few times as many states as instances reach the pure tail.
    states = min(int(6 * instances + 10 * math.sqrt(rate * busy_s) + 60), _STATES_MOST)
    arrivals = _poisson(rate * busy_s, states + instances)
    balance = np.zeros((states + 1, states + 1))
    row = np.arange(states + 1)
    for before in range(states + 1):
        come = row - max(before - instances, 0)
        balance[:, before] = np.where(come >= 0, arrivals[np.maximum(come, 0)], 0.0)
    for beyond in range(1, instances + 1):  # states beyond the last, by the geometric tail, reach back by c
        come = row - (states + beyond - instances)
        balance[:, states] += ratio**beyond * np.where(come >= 0, arrivals[np.maximum(come, 0)], 0.0)
    balance[np.diag_indices(states + 1)] -= 1.0
    balance[-1] = 1.0  # one equation follows from the others; the sum takes its place
    balance[-1, states] = 1.0 / (1.0 - ratio)
    right = np.zeros(states + 1)
    right[-1] = 1.0
    probabilities: Array = np.maximum(solve(balance, right, check_finite=False), 0.0)
    return probabilities, ratio


def mdc_within(rate: float, busy_s: float, instances: int, limit: int) -> float:
    """Return P(at most ``limit`` events in the system) of an M/D/c queue; 0 if it is unstable."""
    if utilisation(rate, busy_s, instances) >= CRITICAL:
        return 0.0
    probabilities, ratio = mdc_distribution(rate, busy_s, instances)
    if limit < len(probabilities):
        return min(1.0, float(probabilities[: limit + 1].sum()))
    beyond = limit + 1 - len(probabilities)
    return 1.0 - float(probabilities[-1]) * ratio ** (beyond + 1) / (1.0 - ratio)


def _tail_ratio(offered: float, instances: int) -> float:
    from scipy.optimize import brentq

    def equation(tau: float) -> float:
        return instances * math.log(tau) + offered * (1.0 - tau)

    turn = instances / offered  # the equation's maximum; the root lies beyond it
    high = 2.0 * turn
    while equation(high) > 0:
        high *= 2.0
    return 1.0 / float(brentq(equation, turn, high, xtol=_ROOT_ERROR))


def _poisson(mean: float, most: int) -> Array:
    from scipy.special import gammaln

    counts = np.arange(most + 1)
    probabilities: Array = np.exp(counts * math.log(mean) - mean - gammaln(counts + 1))
    return probabilities
