"""Dynamic Load Balancing (DLB, algorithm 1): moves key groups from loaded lanes to the least loaded one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from policies.arrays import Array, BoolArray, IntArray
from policies.keys.imbalance import imb_score, lane_loads

Pick = Literal["heavy", "light"]
"""Which group of a loaded lane moves: the one with the greatest load (DLB-H) or with the least (DLB-L)."""

_NOISE = 1e-9
"""A score that is better by less than this is not better."""

_ALONE = 0.9
"""If one group has this part of the greatest lane's load, that lane gets hardly faster without all others."""


@dataclass(frozen=True, slots=True)
class GroupMove:
    """One key group that changes its lane."""

    group: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Balance:
    """What an attempt to balance has found.

    Attributes:
        moves: in this order; a group is moved at most once.
        score_before: imbScore in percent.
        score_after: the same once all have moved.
        hot_group: the group with so much load that no division of groups, and no further lane, would relieve its lane;
            None if there is none.
    """

    moves: tuple[GroupMove, ...]
    score_before: float
    score_after: float
    hot_group: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceTerms:
    """How lanes are balanced.

    Attributes:
        theta: the imbScore in percent up to which lanes count as balanced.
        pick: which groups move.
        moved_most: the part of all groups that may move at a time, in [0, 1].

    Raises:
        ValueError: theta is negative, or moved_most is not in [0, 1].
    """

    theta: float = 15.0
    pick: Pick = "heavy"
    moved_most: float = 0.05

    def __post_init__(self) -> None:
        if self.theta < 0 or not 0 <= self.moved_most <= 1:
            raise ValueError(f"theta must not be negative, and moved_most lies in [0, 1]: {self}")


def balance(group_load: Array, lane_of: IntArray, capacity: Array, terms: BalanceTerms) -> Balance:
    """Return the moves of algorithm 1.

    While imbScore exceeds theta, the most loaded lane gives one group to the least loaded one. If that improves
    nothing, the next most loaded lane does. It ends when no lane can improve the score.

    Two things differ from the paper. A lane's load is its events over its capacity, since a VM may be faster than home.
    And if moving the picked group does not improve the score, the lane's next group is tried, not the next lane's
    first: otherwise a lane with one hot group would keep all its other groups.

    Args:
        group_load: keys_load, shape (groups,), in events.
        lane_of: keys_map, shape (groups,).
        capacity: what each lane can do, shape (lanes,), in events per second or any other unit; above zero.
        terms: when, and how many.
    """
    lanes = len(capacity)
    loads = lane_loads(group_load, lane_of, lanes) / capacity
    score = before = imb_score(loads)
    movable = group_load > 0
    now, moves = lane_of.copy(), list[GroupMove]()
    while score > terms.theta and len(moves) < int(terms.moved_most * len(group_load)):
        move = _next_move(group_load, now, loads, capacity, movable, terms.pick)
        if move is None:
            break
        moved = group_load[move.group]
        loads[move.source] -= moved / capacity[move.source]
        loads[move.target] += moved / capacity[move.target]
        now[move.group] = move.target
        movable[move.group] = False
        moves.append(move)
        score = imb_score(loads)
    return Balance(tuple(moves), before, score, _hot_group(group_load, now, loads, capacity, score > terms.theta))


def _next_move(
    group_load: Array,
    lane_of: IntArray,
    loads: Array,
    capacity: Array,
    movable: BoolArray,
    pick: Pick,
) -> GroupMove | None:
    """Return the move from the most loaded lane that can improve the score; None if no lane can."""
    target = int(loads.argmin())
    for source in np.argsort(-loads, kind="stable").tolist():
        if source == target:
            continue
        groups = np.flatnonzero((lane_of == source) & movable)
        better = groups[_improves(group_load[groups], loads, capacity, source, target)]
        if len(better):
            at = group_load[better].argmax() if pick == "heavy" else group_load[better].argmin()
            return GroupMove(int(better[at]), source, target)
    return None


def _improves(moved: Array, loads: Array, capacity: Array, source: int, target: int) -> BoolArray:
    """Return whether imbScore falls if a group with this load moves, for each load in ``moved``."""
    lanes = len(loads)
    left, arrived = loads[source] - moved / capacity[source], loads[target] + moved / capacity[target]
    total = loads.sum() + (left - loads[source]) + (arrived - loads[target])
    squares = (loads**2).sum() + (left**2 - loads[source] ** 2) + (arrived**2 - loads[target] ** 2)
    # (std / mean)^2 = lanes * squares / total^2 - 1
    now = lanes * (loads**2).sum() / loads.sum() ** 2
    return np.asarray(lanes * squares / total**2 < now - _NOISE, dtype=np.bool_)


def _hot_group(group_load: Array, lane_of: IntArray, loads: Array, capacity: Array, unbalanced: bool) -> int | None:
    """Return the group that alone has nearly all load of the most loaded lane, if the lanes are not balanced."""
    if not unbalanced:
        return None
    lane = int(loads.argmax())
    groups = np.flatnonzero(lane_of == lane)
    heaviest = int(groups[group_load[groups].argmax()])
    alone = group_load[heaviest] / capacity[lane]
    return heaviest if alone >= _ALONE * loads[lane] else None
