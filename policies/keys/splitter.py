"""The splitter of a keyed query: maps events to lanes by their key group, and decides which groups move when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from policies.arrays import Array, IntArray
from policies.keys.balancing import Balance, BalanceTerms, GroupMove, balance
from policies.keys.imbalance import imb_score, lane_loads
from policies.keys.placement import by_hash

_EVENTS_LEAST = 200
"""With fewer events for each lane, the loads differ by chance. A window with fewer is judged with the next one."""


class KeySplitter:
    """Keeps keys_map and keys_load of one query. Groups move only when ``moved`` says that their state did.

    Args:
        groups: how many key groups there are; the hash of a key, modulo groups, is its group.
        lanes: the names of the lanes; the groups begin at the first ones given by key grouping.
        terms: when, and how many groups move.

    Raises:
        ValueError: there is no lane, or there are fewer groups than lanes.
    """

    def __init__(self, groups: int, lanes: Sequence[str], terms: BalanceTerms) -> None:
        if not 1 <= len(lanes) <= groups:
            raise ValueError(f"{groups} key groups cannot be divided among {len(lanes)} lanes")
        self._terms = terms
        self._lanes = tuple(lanes)
        self._lane_of = by_hash(groups, len(lanes))
        self._counts: Array = np.zeros(groups)
        self._load: Array = np.zeros(groups)

    @property
    def lanes(self) -> tuple[str, ...]:
        """The names of the lanes."""
        return self._lanes

    @property
    def lane_of(self) -> IntArray:
        """keys_map, shape (groups,): the number of each group's lane; a copy."""
        return self._lane_of.copy()

    @property
    def score(self) -> float:
        """The imbScore in percent of the last window that was judged, if all lanes had the same capacity."""
        return imb_score(lane_loads(self._load, self._lane_of, len(self._lanes)))

    def split(self, groups: IntArray) -> IntArray:
        """Return the lane of each event, and count the events.

        Args:
            groups: the key group of each event, shape (events,).

        Returns:
            Numbers of lanes, shape (events,).
        """
        self._counts += np.bincount(groups, minlength=len(self._counts))
        return self._lane_of[groups]

    def end_window(self, capacity: Mapping[str, float]) -> Balance | None:
        """Return which groups should move.

        Args:
            capacity: events per second of each lane, above zero; a lane without one counts as the mean of the others.

        Returns:
            None if there were too few events to judge.
        """
        if self._counts.sum() < _EVENTS_LEAST * len(self._lanes):
            return None
        self._load, self._counts = self._counts, np.zeros_like(self._counts)
        return balance(self._load, self._lane_of, self._capacities(capacity), self._terms)

    def moved(self, moves: Sequence[GroupMove]) -> None:
        """Note that the state of these groups is in their new lanes: their next events go there.

        Raises:
            ValueError: a group is not in the lane from which it moved. Nothing has changed.
        """
        for move in moves:
            if self._lane_of[move.group] != move.source:
                raise ValueError(f"group {move.group} is in lane {self._lane_of[move.group]}, not in {move.source}")
        for move in moves:
            self._lane_of[move.group] = move.target

    def open_lane(self, lane: str) -> None:
        """Add a lane, which has no group yet: the next windows move some to it.

        Raises:
            ValueError: it is open already.
        """
        if lane in self._lanes:
            raise ValueError(f"lane {lane} is open already")
        self._lanes = (*self._lanes, lane)

    def moves_off(self, lane: str, capacity: Mapping[str, float]) -> list[GroupMove]:
        """Return how all groups of a lane move to the others: the greatest load first, to the least loaded lane.

        Raises:
            ValueError: it is not open, or it is the only lane.
        """
        source = self._number(lane)
        if len(self._lanes) == 1:
            raise ValueError(f"lane {lane} is the only one: its groups can go nowhere")
        capacities = self._capacities(capacity)
        loads = lane_loads(self._load, self._lane_of, len(self._lanes)) / capacities
        loads[source] = np.inf
        groups = np.flatnonzero(self._lane_of == source)
        moves = []
        for group in groups[np.argsort(-self._load[groups], kind="stable")].tolist():
            target = int(loads.argmin())
            # A group without any event counts a little, so that such groups are spread, too.
            loads[target] += max(self._load[group], 1.0) / capacities[target]
            moves.append(GroupMove(group, source, target))
        return moves

    def close_lane(self, lane: str) -> None:
        """Remove a lane that has no group any more. The lanes behind it get other numbers.

        Raises:
            ValueError: it is not open, or it still has groups.
        """
        number = self._number(lane)
        left = int(np.count_nonzero(self._lane_of == number))
        if left:
            raise ValueError(f"lane {lane} still has {left} key groups")
        self._lanes = self._lanes[:number] + self._lanes[number + 1 :]
        self._lane_of[self._lane_of > number] -= 1

    def _number(self, lane: str) -> int:
        if lane not in self._lanes:
            raise ValueError(f"lane {lane} is not open; these are: {', '.join(self._lanes)}")
        return self._lanes.index(lane)

    def _capacities(self, capacity: Mapping[str, float]) -> Array:
        known = [rate for lane in self._lanes if (rate := capacity.get(lane, 0.0)) > 0]
        usual = sum(known) / len(known) if known else 1.0
        return np.array([capacity.get(lane, 0.0) or usual for lane in self._lanes])
