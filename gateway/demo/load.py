"""The demo's load: mail again and again, at a rate with two spikes, relative to the capacity of one engine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from engines.email.mailbox import Mail

BASE_SHARE = 0.3
SPIKE_SHARE = 2.0


@dataclass(frozen=True, slots=True)
class DemoPace:
    """How much a demo plays.

    Attributes:
        warm_up_events: as fast as possible, before anything is measured.
        capacity_events: as fast as possible, to measure the rate that home sustains.
        profile: (duration in seconds, rate relative to that rate), one after the other.
        cold: whether a VM starts its Spark only once it is ordered; otherwise it is warm, and its boot is emulated.
    """

    warm_up_events: int
    capacity_events: int
    profile: tuple[tuple[float, float], ...]
    cold: bool = False


# Durations as in Figure 7 of ESM (two spikes, with a longer calm between them), scaled to 68 s.
FULL = DemoPace(
    warm_up_events=200_000,
    capacity_events=120_000,
    profile=((4.0, BASE_SHARE), (15.0, SPIKE_SHARE), (25.0, BASE_SHARE), (15.0, SPIKE_SHARE), (9.0, BASE_SHARE)),
)
# To see that everything works: one spike, just long enough for a VM. Latencies say little after so short a warm-up.
QUICK = DemoPace(
    warm_up_events=30_000,
    capacity_events=40_000,
    profile=((1.0, BASE_SHARE), (9.0, SPIKE_SHARE), (4.0, BASE_SHARE)),
)
# Spark alone starts in 14 to 17 s on an idle machine with two cores, and here home works at full load beside it.
COLD = DemoPace(
    warm_up_events=200_000,
    capacity_events=120_000,
    profile=((4.0, BASE_SHARE), (60.0, SPIKE_SHARE), (90.0, BASE_SHARE), (60.0, SPIKE_SHARE), (36.0, BASE_SHARE)),
    cold=True,
)
PACES: Mapping[str, DemoPace] = {"full": FULL, "quick": QUICK, "cold": COLD}


class RateSegment(msgspec.Struct, frozen=True):
    """A stretch of constant rate."""

    duration_s: float
    events_per_s: float

    @property
    def events(self) -> float:
        """The number of its events; it need not be whole."""
        return self.duration_s * self.events_per_s


def spikes(capacity_events_per_s: float, pace: DemoPace = FULL) -> tuple[RateSegment, ...]:
    """Return the demo's profile for an engine that sustains ``capacity_events_per_s``."""
    if capacity_events_per_s <= 0:
        raise ValueError(f"capacity must be above 0 events/s, not {capacity_events_per_s}")
    return tuple(RateSegment(duration_s, share * capacity_events_per_s) for duration_s, share in pace.profile)


def event_count(profile: Sequence[RateSegment]) -> int:
    """Return how many events are due before the profile ends; the first is due at once."""
    return math.ceil(sum(segment.events for segment in profile))


def due_times_s(profile: Sequence[RateSegment]) -> NDArray[np.float64]:
    """Return when each event is due, seconds since the start; shape (event_count,), ascending."""
    ends = np.cumsum([segment.events for segment in profile])
    ends_s = np.cumsum([segment.duration_s for segment in profile])
    due_s: NDArray[np.float64] = np.interp(
        np.arange(event_count(profile), dtype=float), np.concatenate([[0.0], ends]), np.concatenate([[0.0], ends_s])
    )
    return due_s


def distinct_mails(mails: Iterable[Mail]) -> list[Mail]:
    """Return the first mail of each Message-ID, by which a replay identifies its events."""
    first: dict[str, Mail] = {}
    for mail in mails:
        first.setdefault(mail.message_id, mail)
    return list(first.values())


def loops_needed(events: int, base: int) -> int:
    """Return how often ``base`` mails must be played for ``events`` events."""
    return math.ceil(events / base)


def looped_id(message_id: str, loop: int) -> str:
    """Return the id of a mail in pass ``loop``; the first pass (0) keeps the ids unchanged."""
    return f"{message_id}#{loop}" if loop else message_id
