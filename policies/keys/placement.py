"""Ways to place keys that look at no imbalance: key grouping (KG), partial key grouping (PKG) and LPTF.

Key grouping is where a keyed query begins. The other two are what Dynamic Load Balancing is compared with.
"""

from __future__ import annotations

import numpy as np

from policies.arrays import Array, IntArray


def by_hash(groups: int, lanes: int) -> IntArray:
    """Return KG: group modulo lanes. Groups come from a hash, so their numbers are as good as random.

    Returns:
        keys_map, shape (groups,).
    """
    return np.arange(groups, dtype=np.intp) % lanes


def longest_first(group_load: Array, lanes: int) -> IntArray:
    """Return LPTF: each group, the greatest load first, goes to the lane with the least load so far.

    It ignores where the groups are, so nearly all of them move.

    Args:
        group_load: shape (groups,), in events.
        lanes: how many lanes there are.

    Returns:
        keys_map, shape (groups,).
    """
    lane_of = np.empty(len(group_load), dtype=np.intp)
    loads = np.zeros(lanes)
    for group in np.argsort(-group_load, kind="stable"):
        lane = int(loads.argmin())
        lane_of[group] = lane
        loads[lane] += group_load[group]
    return lane_of


def by_two_choices(events: IntArray, loads: Array) -> IntArray:
    """Return PKG: each event goes to that one of two lanes, both given by its group, which has the least load.

    The events of one group are in two lanes then. So the answers of most keyed queries would be wrong: this is for
    comparisons only.

    Args:
        events: the group of each event in order, shape (events,).
        loads: the events of each lane so far, shape (lanes,); counted up.

    Returns:
        The lane of each event, shape (events,).
    """
    lanes = len(loads)
    first = events % lanes
    # A second hash of the group, never the same lane if there is another one.
    second = (first + 1 + (events * 2_654_435_761 >> 16) % max(1, lanes - 1)) % lanes
    chosen = np.empty(len(events), dtype=np.intp)
    for at, (one, other) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        lane = one if loads[one] <= loads[other] else other
        loads[lane] += 1
        chosen[at] = lane
    return chosen
