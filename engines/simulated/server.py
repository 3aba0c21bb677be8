"""A machine that serves jobs one after the other on its cores: a queue with c servers, computed without ticks."""

from __future__ import annotations

import heapq
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceInterval:
    """When a job begins and when it is done."""

    begun_s: float
    done_s: float


class Server:
    """Serves jobs in order of arrival; each job runs on one core.

    Args:
        cores: how many jobs run at a time.
        since_s: no core works before this time.
    """

    def __init__(self, cores: int = 1, since_s: float = 0.0) -> None:
        if cores < 1:
            raise ValueError(f"a server needs at least one core, not {cores}")
        self._free_s = [since_s] * cores
        self._last_s = since_s

    def serve(self, at_s: float, work_s: float) -> ServiceInterval:
        """Serve a job that arrives at ``at_s`` and needs ``work_s`` of a core.

        Raises:
            ValueError: an earlier job arrived later, or the work is negative.
        """
        if at_s < self._last_s or work_s < 0:
            raise ValueError(f"a job at {at_s!r} s of {work_s!r} s cannot follow one at {self._last_s!r} s")
        self._last_s = at_s
        begun_s = max(at_s, self._free_s[0])
        heapq.heapreplace(self._free_s, begun_s + work_s)
        return ServiceInterval(begun_s, begun_s + work_s)
