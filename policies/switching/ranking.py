"""Which of several queries goes to the cloud next (ESM, section 4): by L - L_QoS, one by one while it helps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple


class Candidate(NamedTuple):
    """The properties of a query that the ranking uses.

    Attributes:
        query: name of the query.
        latency_s: L_t.
        latency_qos_s: L_QoS.
        tolerance_s: tau; how long, beyond a slot, to wait for the effect of the last switch.
        wants_cloud: phi_data of equation 2.
    """

    query: str
    latency_s: float
    latency_qos_s: float
    tolerance_s: float
    wants_cloud: bool


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the queries with the greatest L - L_QoS first; equal ones by name."""
    return sorted(candidates, key=lambda c: (c.latency_qos_s - c.latency_s, c.query))


def total_excess_s(candidates: Iterable[Candidate]) -> float:
    """Return by how much all queries together miss their targets."""
    return sum([max(0.0, c.latency_s - c.latency_qos_s) for c in candidates])


class Ranking:
    """Admits queries to the cloud one after another.

    The first may go at once. The next waits until a slot and its tau have passed since the last switch, and goes only
    if the total excess latency fell meanwhile or is zero, a new VM became ready, or a query left the cloud. A query
    that no longer wants the cloud leaves.
    """

    def __init__(self, slot_s: float) -> None:
        self._slot_s = slot_s
        self._switched: dict[str, None] = {}
        self._last_at_s = 0.0
        self._last_excess_s = 0.0
        self._fresh_vm = False

    @property
    def switched(self) -> Sequence[str]:
        """Return the queries whose events go to the cloud, in the order of their switching."""
        return tuple(self._switched)

    def is_switched(self, query: str) -> bool:
        """Return whether a query's events go to the cloud."""
        return query in self._switched

    def vm_ready(self) -> None:
        """Note that a new VM is ready: the next switch may help even if the last did not."""
        self._fresh_vm = True

    def forget(self, query: str) -> None:
        """Note that a query is gone."""
        self._switched.pop(query, None)

    def update(self, candidates: Sequence[Candidate], at_s: float) -> Mapping[str, str]:
        """Switch at most one more query; return the reason for each that wants the cloud and is not switched."""
        for candidate in candidates:
            if not candidate.wants_cloud and self.is_switched(candidate.query):
                del self._switched[candidate.query]
                self._last_excess_s = inf  # what the last switch did cannot be seen any more
        refused: dict[str, str] = {}
        waiting = [c for c in candidates if c.wants_cloud and c.query not in self._switched]
        if not waiting:
            return refused
        excess_s = total_excess_s(candidates)
        for candidate in ranked(waiting):
            why_not = self._why_not(candidate, excess_s, at_s)
            if why_not:
                refused[candidate.query] = why_not
                continue
            self._switched[candidate.query] = None
            self._last_at_s, self._last_excess_s, self._fresh_vm = at_s, excess_s, False
        return refused

    def _why_not(self, candidate: Candidate, excess_s: float, at_s: float) -> str:
        if not self._switched:
            return ""
        last = next(reversed(self._switched))
        if at_s - self._last_at_s < self._slot_s + candidate.tolerance_s - 1e-9:
            return f"waits to see what switching {last} did"
        if 0 < excess_s >= self._last_excess_s and not self._fresh_vm:
            return f"switching {last} did not lower the total excess latency of {excess_s:.2f} s"
        return ""
