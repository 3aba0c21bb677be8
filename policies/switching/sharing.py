"""Which part of a query's events goes to the cloud: R of ESM (section 4.2), fixed or found by feedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from policies.signals import HOME, QuerySlot

_STEPS = 1000
"""Shares are multiples of a thousandth: finer ones would only add noise to the log."""

_RATE_SPREAD = 4.0
"""A measured rate counts as at most this factor above or below the mean of the cloud lanes.

A lane with few events runs small batches, measures slow, and would otherwise get even fewer.
"""


_TAKEN = 0.8
"""Below this part of its share the cloud did not take it; runs are too coarse for a finer limit."""

_OWED_RUNS = 0.5
"""How much of a run a lane may be owed before it gets one: see ``Router.pick``."""

_MEMORY = 0.8
"""The weight of a slot's dispatches one slot later: with two large runs a slot, a small share gets none in some."""

_SLOTS_LEAST = 5
"""Fewer slots are not enough to judge what the cloud takes."""


class ShareController(Protocol):
    """Finds the share of all cloud lanes together."""

    def update(self, slot: QuerySlot, cloud: Sequence[str], share: float) -> float:
        """Return the cloud's share in [0, 1] for the next slot.

        Args:
            slot: what was measured.
            cloud: the ready cloud lanes.
            share: the cloud's share during that slot.
        """
        ...


@dataclass(frozen=True, slots=True)
class FixedShare:
    """Always R, as ESM does; 1 moves the whole query.

    Raises:
        ValueError: R is not in [0, 1].
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"a share lies in [0, 1], not at {self.share!r}")

    def update(self, slot: QuerySlot, cloud: Sequence[str], share: float) -> float:  # noqa: ARG002
        """Return R."""
        return self.share


@dataclass(frozen=True, slots=True)
class FeedbackGains:
    """How strongly ``AutoShare`` reacts, per slot.

    A lane's backlog integrates past errors of the share. A controller that only integrates errors too would oscillate
    for ever: ``proportional`` damps it.

    Attributes:
        proportional: share added temporarily when one lane's time is negligible beside the other's.
        integral: share added permanently for the same difference; divided by the number of slots of that time, since a
            long backlog also takes long to change.
        tracking: how far the share moves towards what the cloud really took, when it took less than its share.
        least: the cloud's smallest share; without any event nothing could be measured there.
        most: the cloud's largest share, so that home never starves.
    """

    proportional: float = 0.2
    integral: float = 0.05
    tracking: float = 0.3
    least: float = 0.02
    most: float = 0.95


@dataclass(slots=True)
class _Recent:
    """Recent dispatches: all events, those that went to the cloud, and those that its share would have given it."""

    slots: int = 0
    events: float = 0.0
    runs: float = 0.0
    to_cloud: float = 0.0
    offered: float = 0.0

    def refused(self, lanes: int) -> bool:
        """Return whether so many cloud lanes did not take their share.

        A lane gets its next run only when it is owed half of it. So with few large runs it may be that much behind.
        """
        owed = _OWED_RUNS * lanes * self.events / self.runs if self.runs else 0.0
        return self.slots >= _SLOTS_LEAST and self.to_cloud + owed < _TAKEN * self.offered

    def add(self, slot: QuerySlot, share: float) -> None:
        """Add a slot in which the cloud had ``share``."""
        events = sum(slot.dispatched_events.values())
        self.slots += bool(events)
        self.events = _MEMORY * self.events + events
        self.runs = _MEMORY * self.runs + slot.dispatched_runs
        self.to_cloud = _MEMORY * self.to_cloud + events - slot.dispatched_events.get(HOME, 0)
        self.offered = _MEMORY * self.offered + share * events


class AutoShare:
    """Feedback that makes events complete equally late in the cloud and at home.

    All events wait alike before they enter a lane, so it compares the times in the lanes. It starts from the lanes'
    service rates, and starts again when the set of lanes changes. Home takes what the cloud cannot take. So a share
    beyond what the cloud takes does no harm for a while, but it must not wind up.

    Args:
        slot_s: length of a slot.
        gains: how strongly it reacts.
    """

    def __init__(self, slot_s: float, gains: FeedbackGains | None = None) -> None:
        self._slot_s = slot_s
        self._gains = gains or FeedbackGains()
        self._lanes: frozenset[str] = frozenset()
        self._base = 0.0
        self._recent = _Recent()

    def update(self, slot: QuerySlot, cloud: Sequence[str], share: float) -> float:
        """Return the cloud's share in [``least``, ``most``] for the next slot."""
        gains = self._gains
        if frozenset(cloud) != self._lanes:
            self._lanes = frozenset(cloud)
            self._base = self._clamped(_share_by_rate(slot.rates, cloud))
            self._recent = _Recent()
            return self._base
        error = _relative_difference(slot.home_lane_s, slot.cloud_lane_s)
        if error > 0 and slot.no_credit.issuperset(cloud):
            error = 0.0
        self._recent.add(slot, share)
        if self._recent.refused(len(cloud)):
            carried = self._recent.to_cloud / self._recent.events
            self._base = self._clamped(self._base + gains.tracking * (carried - self._base))
        else:
            patience = max(1.0, (slot.home_lane_s or 0.0) / self._slot_s, (slot.cloud_lane_s or 0.0) / self._slot_s)
            self._base = self._clamped(self._base + gains.integral * error / patience)
        return self._clamped(self._base + gains.proportional * error)

    def _clamped(self, share: float) -> float:
        return min(max(share, self._gains.least), self._gains.most)


def split(share: float, cloud: Sequence[str], rates: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Divide the cloud's share among its lanes in proportion to their measured rates.

    Returns:
        Pairs of lane and share, ``home`` first, in whole thousandths that sum to 1; cloud lanes without a share are
        left out.
    """
    steps = round(share * _STEPS) if cloud else 0
    weights = _weights(rates, cloud)
    exact = [steps * weight for weight in weights]
    given = [int(part) for part in exact]
    by_remainder = sorted(range(len(cloud)), key=lambda at: given[at] - exact[at])
    for at in by_remainder[: steps - sum(given)]:
        given[at] += 1
    lanes = [(lane, part / _STEPS) for lane, part in zip(cloud, given, strict=True) if part]
    return ((HOME, (_STEPS - sum(given)) / _STEPS), *lanes)


def _weights(rates: Mapping[str, float], cloud: Sequence[str]) -> list[float]:
    """Return parts that sum to 1; a lane of unknown rate counts as the mean of the others."""
    known = [rates[lane] for lane in cloud if rates.get(lane, 0) > 0]
    mean = sum(known) / len(known) if known else 1.0
    bounded = [min(max(rates.get(lane) or mean, mean / _RATE_SPREAD), mean * _RATE_SPREAD) for lane in cloud]
    return [rate / sum(bounded) for rate in bounded]


def _share_by_rate(rates: Mapping[str, float], cloud: Sequence[str]) -> float:
    """Return the cloud's part of all service rates; an unknown rate counts as the mean of the known ones."""
    known = [rates[lane] for lane in (HOME, *cloud) if rates.get(lane, 0) > 0]
    mean = sum(known) / len(known) if known else 1.0
    in_cloud = sum(rates.get(lane) or mean for lane in cloud)
    return in_cloud / (in_cloud + (rates.get(HOME) or mean))


def _relative_difference(home_s: float | None, cloud_s: float | None) -> float:
    """Return by which part of the greater time home is slower (or faster, negative); 0 while one is unknown."""
    if home_s is None or cloud_s is None or max(home_s, cloud_s) <= 0:
        return 0.0
    return (home_s - cloud_s) / max(home_s, cloud_s)
