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


PATIENCE_SLOTS = 10
"""A switch that has not helped after so many slots and tau is taken back in favour of the next query."""


class Ranking:
    """Admits queries to the cloud one after another.

    The first may go at once. The next waits until a slot and its tau have passed since the last switch, and goes only
    if the total excess latency fell meanwhile or is zero, a new VM became ready, or a query left the cloud. A query
    that no longer wants the cloud leaves.

    If the last switch does not help, and has not lowered the latency of the query itself, the ranking is examined
    again: that query goes home, and the next one is tried in its place. Each is tried once; then the first of the
    ranking stays. That ends when all targets are met or a new VM is ready.
    """

    def __init__(self, slot_s: float) -> None:
        self._slot_s = slot_s
        # The latency of each before it was switched.
        self._switched: dict[str, float] = {}
        self._in_vain: dict[str, None] = {}
        self._settled = False
        self._last_helped = False
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
        self._begin_anew()

    def forget(self, query: str) -> None:
        """Note that a query is gone."""
        self._switched.pop(query, None)
        self._in_vain.pop(query, None)

    def update(self, candidates: Sequence[Candidate], at_s: float) -> Mapping[str, str]:
        """Switch at most one more query; return the reason for each that wants the cloud and is not switched."""
        for candidate in candidates:
            if not candidate.wants_cloud and self.is_switched(candidate.query):
                del self._switched[candidate.query]
                self._last_excess_s = inf  # what the last switch did cannot be seen any more
        refused: dict[str, str] = {}
        excess_s = total_excess_s(candidates)
        if not excess_s:
            self._begin_anew()
        self._note_help(candidates, excess_s, at_s)
        waiting = [c for c in candidates if c.wants_cloud and c.query not in self._switched]
        if not waiting:
            return refused
        waiting += self._taken_back(candidates, waiting, at_s)
        for candidate in ranked(waiting):
            why_not = self._why_not(candidate, excess_s, at_s)
            if why_not:
                refused[candidate.query] = why_not
                continue
            self._switched[candidate.query] = candidate.latency_s
            self._last_at_s, self._last_excess_s, self._fresh_vm = at_s, excess_s, False
            self._last_helped = False
        return refused

    def _note_help(self, candidates: Sequence[Candidate], excess_s: float, at_s: float) -> None:
        """Note whether the last switch has helped. One that has may not be blamed for a load that rises later."""
        last = self._last_of(candidates)
        if last is None or at_s - self._last_at_s < self._slot_s + last.tolerance_s - 1e-9:
            return
        if not excess_s or excess_s < self._last_excess_s or last.latency_s < self._switched[last.query]:
            self._last_helped = True

    def _last_of(self, candidates: Sequence[Candidate]) -> Candidate | None:
        last = next(reversed(self._switched), None)
        return next((candidate for candidate in candidates if candidate.query == last), None)

    def _taken_back(
        self, candidates: Sequence[Candidate], waiting: Sequence[Candidate], at_s: float
    ) -> list[Candidate]:
        """Take back the last switch if it was in vain; return the query if so."""
        last = self._last_of(candidates)
        if last is None or self._settled or self._last_helped:
            return []
        if at_s - self._last_at_s < PATIENCE_SLOTS * self._slot_s + last.tolerance_s - 1e-9:
            return []
        del self._switched[last.query]
        self._in_vain[last.query] = None
        self._last_excess_s, self._last_helped = inf, True  # nothing more is known of the one before it
        if all(candidate.query in self._in_vain for candidate in waiting):
            self._in_vain.clear()
            self._settled = True
        return [last]

    def _begin_anew(self) -> None:
        self._in_vain.clear()
        self._settled = False

    def _why_not(self, candidate: Candidate, excess_s: float, at_s: float) -> str:
        if candidate.query in self._in_vain:
            return "it was switched in vain"
        if not self._switched:
            return ""
        last = next(reversed(self._switched))
        if at_s - self._last_at_s < self._slot_s + candidate.tolerance_s - 1e-9:
            return f"waits to see what switching {last} did"
        if 0 < excess_s >= self._last_excess_s and not self._fresh_vm:
            return f"switching {last} did not lower the total excess latency of {excess_s:.2f} s"
        return ""
