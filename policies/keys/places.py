"""In which place each part of a keyed query is to be: home, or a VM. The loads of the places follow the shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from policies.arrays import Array, IntArray
from policies.keys.balancing import BalanceTerms, balance
from policies.keys.imbalance import lane_loads
from policies.signals import HOME

_MEMORY = 0.8
"""The weight of a slot's events one slot later: about five slots count."""

_TERMS = BalanceTerms(theta=15.0, pick="heavy", moved_most=1.0)
"""DLB-H. A query has few parts, and each moves while all others go on: any number of them may."""

STAY_S = 20.0
"""The default: while a part moves, both places process its events."""


class PartPlaces:
    """Decides where the parts are to be. The caller moves them, and tells where they are.

    A part is what a key group is in Dynamic Load Balancing, and a place is a lane whose capacity is its share.

    Args:
        parts: how many parts there are.
        stay_s: after parts have moved, no others move for so long, unless a place ends.
    """

    def __init__(self, parts: int, stay_s: float = STAY_S) -> None:
        self._stay_s = stay_s
        self._counts: Array = np.zeros(parts)
        self._load: Array = np.zeros(parts)
        self._stays_until_s = 0.0

    def arrived(self, events: Sequence[int]) -> None:
        """Count events of each part."""
        self._counts += np.asarray(events)

    def end_slot(self) -> None:
        """Take the events of a slot into account."""
        self._load = _MEMORY * self._load + self._counts
        self._counts = np.zeros_like(self._counts)

    def moved(self, at_s: float) -> None:
        """Note that parts have moved."""
        self._stays_until_s = at_s + self._stay_s

    @property
    def heaviest(self) -> float:
        """The part with the most events has so much of all events, in [0, 1]; 0 before the first."""
        total = float(self._load.sum())
        return float(self._load.max()) / total if total else 0.0

    def targets(self, places: Sequence[str], shares: Mapping[str, float], at_s: float) -> tuple[str, ...]:
        """Return where each part is to be.

        Args:
            places: where each part is.
            shares: of the events, by place. A part leaves a place without a share at once.
            at_s: now.
        """
        used = {place: share for place, share in shares.items() if share > 0} or {HOME: 1.0}
        left = [place not in used for place in places]
        if not any(left) and (at_s < self._stays_until_s or len(used) == 1):
            return tuple(places)
        names = sorted(used)
        capacity = np.array([used[name] for name in names])
        # A part without any event counts a little, so that such parts are spread, too.
        load = np.maximum(self._load, 1e-3)
        lane_of = self._placed(places, names, load, capacity)
        # A part moves once in a balance. The next one may improve more; each lowers imbScore, so they end.
        while moves := balance(load, lane_of, capacity, _TERMS).moves:
            for move in moves:
                lane_of[move.group] = move.target
        return tuple(names[lane] for lane in lane_of)

    def _placed(self, places: Sequence[str], names: Sequence[str], load: Array, capacity: Array) -> IntArray:
        """Return the number of each part's place; parts that must leave go to the place with the least load."""
        lane_of = np.array([names.index(place) if place in names else -1 for place in places], dtype=np.intp)
        staying = lane_of >= 0
        loads = lane_loads(load[staying], lane_of[staying], len(names)) / capacity
        leaving = np.flatnonzero(~staying)
        for part in leaving[np.argsort(-load[leaving], kind="stable")].tolist():
            lane = int(loads.argmin())
            lane_of[part] = lane
            loads[lane] += load[part] / capacity[lane]
        return lane_of
