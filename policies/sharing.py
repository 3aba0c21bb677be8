"""Which part of a query's events goes to the cloud: R of ESM (section 4.2), fixed or found by feedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from policies.signals import HOME, QuerySlot

_STEPS = 1000
"""Shares are multiples of a thousandth: finer ones would only make noise in the log."""

_RATE_SPREAD = 4.0
"""Among cloud lanes a measured rate counts at most this many times more, or less, than their mean: a lane that got few
events ran small batches, measured slow, and would get fewer still."""


class ShareController(Protocol):
    """Finds the share of all cloud lanes together."""

    def update(self, slot: QuerySlot, cloud: Sequence[str]) -> float:
        """Return the cloud's share in [0, 1] for the next slot, while events go to the ready lanes ``cloud``."""
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

    def update(self, slot: QuerySlot, cloud: Sequence[str]) -> float:  # noqa: ARG002
        """Return R."""
        return self.share


@dataclass(frozen=True, slots=True)
class FeedbackGains:
    """How strongly ``AutoShare`` reacts, per slot.

    A lane's backlog sums up what was wrong with the share before, so a share that only sums up errors too would swing
    for ever: ``proportional`` damps it.

    Attributes:
        proportional: share lent, not added, when one lane's latency is negligible beside the other's.
        integral: share added for the same difference. An answer comes as late as the latency it shows, so for each
            slot of latency beyond the first as much less is added: patience keeps it from swinging.
        tracking: how much of the way the share follows what was really carried when credit ran out.
        least: the cloud's smallest share; without any event its latency could not be measured.
        most: the cloud's largest share, so that home never starves.
    """

    proportional: float = 0.2
    integral: float = 0.05
    tracking: float = 0.3
    least: float = 0.02
    most: float = 0.95


class AutoShare:
    """Feedback that makes events complete equally late in the cloud and at home.

    Starts from the lanes' service rates and begins anew when the set of lanes changes. Where credit ran out, credit did
    the routing: the share then follows what was carried, and is not wound up beyond what the cloud can take.

    Args:
        slot_s: length of a slot.
        gains: how strongly it reacts.
    """

    def __init__(self, slot_s: float, gains: FeedbackGains | None = None) -> None:
        self._slot_s = slot_s
        self._gains = gains or FeedbackGains()
        self._lanes: frozenset[str] = frozenset()
        self._base = 0.0

    def update(self, slot: QuerySlot, cloud: Sequence[str]) -> float:
        """Return the cloud's share in [``least``, ``most``] for the next slot."""
        gains = self._gains
        if frozenset(cloud) != self._lanes:
            self._lanes = frozenset(cloud)
            self._base = self._clamped(_share_by_rate(slot.rates, cloud))
            return self._base
        home_s = slot.latency_s if slot.home_latency_s is None else slot.home_latency_s
        error, delay_s = _relative_difference(home_s, slot.cloud_latency_s), max(home_s, slot.cloud_latency_s or 0.0)
        if error > 0 and slot.no_credit.issuperset(cloud):
            error = 0.0
        base = self._base + gains.integral * error / max(1.0, delay_s / self._slot_s)
        carried = _carried_share(slot)
        if slot.no_credit and carried is not None:
            base += gains.tracking * (carried - base)
        self._base = self._clamped(base)
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


def _relative_difference(home_s: float, cloud_s: float | None) -> float:
    """Return by which part of the greater latency home is slower (or faster, negative); 0 if the cloud's is unknown."""
    if cloud_s is None or max(home_s, cloud_s) <= 0:
        return 0.0
    return (home_s - cloud_s) / max(home_s, cloud_s)


def _carried_share(slot: QuerySlot) -> float | None:
    """Return the part of the slot's events that really went to the cloud; None when none went anywhere."""
    total = sum(slot.dispatched_events.values())
    return 1 - slot.dispatched_events.get(HOME, 0) / total if total else None
