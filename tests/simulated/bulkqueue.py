"""An oracle: one server that takes all that waits, M/G/1 with batches (Bailey's queue with bulk service).

It shares no code with the simulators. Poisson arrivals wait while a batch is served; the next batch is all of them, or
the next arrival if there is none. A batch of n events takes a + n b. The size of the next batch depends only on how
long the present one takes, so sizes are a Markov chain, whose stationary distribution is computed here.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import poisson

from policies.arrays import Array


def mean_latency_s(rate: float, batch_s: float, event_s: float) -> float:
    """Return the mean time of an event from its arrival until its batch is done, in seconds.

    Args:
        rate: events that come per second; ``rate * event_s`` is below 1.
        batch_s: a, what a batch takes however small it is.
        event_s: b, what each event adds.
    """
    busy = rate * event_s
    fluid = rate * batch_s / (1.0 - busy)
    most = int(fluid + 12.0 * np.sqrt(fluid / (1.0 - busy * busy)) + 50.0)
    sizes = np.arange(1, most + 1)
    takes_s = batch_s + sizes * event_s
    followed = poisson.pmf(np.arange(most + 1)[None, :], rate * takes_s[:, None])
    alone = followed[:, 0]
    chain = followed[:, 1:].copy()
    chain[:, 0] += alone  # nothing came: the next batch is the next arrival, which waits for nothing
    chain /= chain.sum(axis=1, keepdims=True)
    share = _stationary(chain)
    next_takes_s = followed[:, 1:] * takes_s[None, :] * sizes[None, :]
    waited_s = takes_s / 2.0 * (followed[:, 1:] * sizes[None, :]).sum(axis=1)
    total_s = share @ (next_takes_s.sum(axis=1) + waited_s + alone * takes_s[0])
    return float(total_s / (share @ sizes))


def _stationary(chain: Array) -> Array:
    share: Array = np.full(len(chain), 1.0 / len(chain))
    for _ in range(500):
        share = share @ chain
    return share
