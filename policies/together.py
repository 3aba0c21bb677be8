"""The VMs that several queries need together: their loads add up, and the private cluster counts once.

Each policy plans as if all engines belonged to its query. That works while the others are quiet; when bursts coincide
it gives too few VMs. So each policy also returns its query's offered load (lambda / mu: how many engines its events
keep busy), and the fleet must carry the sum. Loads are those of one moment: bursts at different times are never added.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from policies.advice import Advice, Load
from policies.signals import QuerySlot

_SAME = 0.05
"""A VM that would do less than this part of its work is not wanted; a query with so little load wants none."""

_MEMORY = 0.99
"""The weight of a slot one slot later, as for the times of events (``policies.planning.enginetimes``)."""

_RECENT = 0.9
"""The same for the part of the time in which a lane works: a batch may be longer than the slot in which it ends."""

_WATCHED = 6.0
"""How many slots, weighted by how recent they are, are needed to divide an engine's time among queries: ten."""

_NOTHING = 1e-4


def together(
    advice: Mapping[str, Advice], own_parts: Mapping[str, float], *, at_home: Collection[str], max_vms: int
) -> Mapping[str, Advice]:
    """Return the policies' advice, raised to what all queries need together; nothing is ever lowered.

    A query's load counts up to the number of engines that its own policy pays for: if that policy accepts late events
    because a VM costs more, the others' loads do not overrule it. So a single query gets what its policy wants.

    Args:
        advice: the advice of each policy, by query.
        own_parts: the part of a query's load that is not caused by others on the same engines (``Overlap.own_part``).
        at_home: queries that never go to the cloud: their load uses home.
        max_vms: the limit of VMs that live at a time.
    """
    loads = {name: (one, one.load, own_parts.get(name, 1.0)) for name, one in advice.items() if one.load is not None}
    if len(loads) < 2:
        return advice
    home = _home_engines([load for _, load, _ in loads.values()])
    ahead = most = 0.0
    for name, (one, load, part) in loads.items():
        wanted, kept = (0, 0) if name in at_home or one.wanted is None else (one.wanted, one.kept)
        ahead += min(load.ahead * part, load.home_engines + wanted)
        most += min(load.most * part, load.home_engines + kept)
    wanted, kept = (min(max_vms, max(0, math.ceil(load - home - _SAME))) for load in (ahead, most))
    why = (
        f"all queries together keep {ahead:.3g} engines busy, home has the capacity of {home:.3g}: "
        f"{wanted} VMs, {kept} kept"
    )
    asking = {name for name, (_, load, part) in loads.items() if load.most * part >= _SAME and name not in at_home}
    return {name: _raised(one, wanted, kept, why) if name in asking else one for name, one in advice.items()}


def _raised(advice: Advice, wanted: int, kept: int, why: str) -> Advice:
    if advice.wanted is None or (advice.wanted >= wanted and advice.kept >= kept):
        return advice
    more = max(advice.wanted, wanted)
    return replace(advice, wanted=more, kept=max(advice.kept, kept, more), why=f"{advice.why}; {why}")


def _home_engines(loads: Iterable[Load]) -> float:
    """Return how many VMs home is worth to the mix of the queries' events: the mean, weighted by load."""
    weights = [(max(load.most, _NOTHING), load.home_engines) for load in loads]
    return math.fsum(weight * home for weight, home in weights) / math.fsum(weight for weight, _ in weights)


class Overlap:
    """The part of a query's batch times that is its own.

    Batches of several queries run side by side on an engine, and each takes longer because of that. An engine that was
    busy for more than all of the time ran several at once: the sum of such times would count it more than once.

    Args:
        slot_s: length of a slot.
    """

    def __init__(self, slot_s: float) -> None:
        self._slot_s = slot_s
        self._recent_s = 0.0
        self._busy_s: dict[tuple[str, str], float] = {}
        self._took_s: defaultdict[str, float] = defaultdict(float)
        self._own_s: defaultdict[str, float] = defaultdict(float)

    def observe(self, slots: Iterable[QuerySlot]) -> None:
        """Take the measurements of all queries in a slot."""
        took_s = {(lane, slot.query): busy_s for slot in slots for lane, busy_s in slot.busy_s.items()}
        self._recent_s = _RECENT * self._recent_s + self._slot_s
        sums_s = {
            key: _RECENT * self._busy_s.get(key, 0.0) + took_s.get(key, 0.0) for key in {**self._busy_s, **took_s}
        }
        self._busy_s = {key: busy_s for key, busy_s in sums_s.items() if busy_s > _NOTHING * self._slot_s}
        lanes: defaultdict[str, float] = defaultdict(float)
        for (lane, _), busy_s in self._busy_s.items():
            lanes[lane] += min(1.0, busy_s / self._recent_s)
        if self._recent_s < _WATCHED * self._slot_s:
            return
        for sums in (self._took_s, self._own_s):
            for query in sums:
                sums[query] *= _MEMORY
        for (lane, query), busy_s in took_s.items():
            self._took_s[query] += busy_s
            self._own_s[query] += busy_s / max(1.0, lanes[lane])

    def own_part(self, query: str) -> float:
        """Return the part of the time of its batches that is its own: 1 if it never shared an engine.

        It is 0 until the query was observed for some slots.
        """
        took_s = self._took_s.get(query, 0.0)
        return self._own_s[query] / took_s if took_s > 0 else 0.0
