"""How unequal the lanes' loads are: eng_load and imbScore (equations 1 and 2 of Dynamic Load Balancing)."""

from __future__ import annotations

import numpy as np

from policies.arrays import Array, IntArray


def lane_loads(group_load: Array, lane_of: IntArray, lanes: int) -> Array:
    """Return eng_load (equation 1): the events of all key groups of each lane.

    Args:
        group_load: keys_load, shape (groups,), in events.
        lane_of: keys_map, shape (groups,), the number of each group's lane.
        lanes: how many lanes there are.

    Returns:
        Shape (lanes,), in events.
    """
    return np.asarray(np.bincount(lane_of, weights=group_load, minlength=lanes), dtype=np.float64)


def imb_score(loads: Array) -> float:
    """Return imbScore (equation 2): the relative standard deviation of the lanes' loads, in percent.

    Args:
        loads: shape (lanes,); zero or more. A lane's load is its events over its capacity if capacities differ.

    Returns:
        0 if all are equal, or if there is no load; sqrt(lanes - 1) * 100 at most.
    """
    mean = float(loads.mean())
    return 100.0 * float(loads.std()) / mean if mean > 0 else 0.0
