"""Into how many runs the ingress cuts arriving events, and how long a run stays open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gateway.query.flow.linger import FACTOR_MAX, RUN_WORK_S
from gateway.simulate.fluid.hosts import ServiceRates
from gateway.simulate.fluid.options import FluidQuery
from policies.arrays import Array

_NOTHING = 1e-9


class FluidCutting:
    """Cuts the events of many queries into runs, as ``gateway.query.flow`` does.

    Args:
        queries: the parameters of each.
        slot_s: length of a slot.
        home: the service rates of lanes at home, shape (queries,).
        cloud: the service rates of lanes of VMs, shape (queries, VMs).

    Attributes:
        open_s: how long runs were open in the last slot, shape (queries,).
    """

    def __init__(self, queries: Sequence[FluidQuery], slot_s: float, home: ServiceRates, cloud: ServiceRates) -> None:
        self._slot_s = slot_s
        self._run_s: Array = np.array([query.run_s for query in queries])
        self._run_most: Array = np.array([float(query.run_events) for query in queries])
        self._batch_runs: Array = np.array([float(query.batch_runs) for query in queries])
        self._full_s: Array = self._run_most * slot_s
        self._least_part: Array = self._run_s / slot_s
        self._home = home
        self._cloud = cloud
        self.open_s: Array = self._run_s

    def cut(self, came: Array, waiting_runs: Array) -> Array:
        """Return how many runs what came is cut into, shape (queries,).

        Args:
            came: arriving events, shape (queries,).
            waiting_runs: runs that wait for a lane or, at home, behind the present micro-batch, shape (queries,).
        """
        linger_s = self._linger_s(came, waiting_runs)
        part = self._least_part if linger_s is self._run_s else linger_s / self._slot_s
        size = np.minimum(np.maximum(came * part, 1.0), self._run_most)
        self.open_s = np.minimum(linger_s, self._full_s / np.maximum(came, _NOTHING))
        return came / size

    def _linger_s(self, came: Array, waiting_runs: Array) -> Array:
        """Return how long runs linger, as ``Linger`` says: longer while more wait than a micro-batch takes."""
        behind = (waiting_runs > self._batch_runs).nonzero()[0]
        if not len(behind):
            return self._run_s
        least_s, rate = self._run_s[behind], self._home.per_s(behind)
        of_cloud = self._cloud.per_s(behind)
        slowest = np.where(of_cloud > 0, of_cloud, np.inf).min(axis=1)
        rate = np.where(rate > 0, np.minimum(rate, slowest), 0.0)
        wanted_s = least_s * np.minimum(waiting_runs[behind] / self._batch_runs[behind], FACTOR_MAX)
        enough_s = RUN_WORK_S * rate / np.maximum(came[behind], _NOTHING) * self._slot_s
        linger_s = self._run_s.copy()
        linger_s[behind] = np.maximum(least_s, np.where(rate > 0, np.minimum(wanted_s, enough_s), wanted_s))
        return linger_s
