"""How long VMs take from their order until they serve, learned from the boots that were seen.

The estimate is a quantile of the latest boots. The configured time counts as the first of them, so it decides until a
VM has booted, and is outvoted soon.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from policies.signals import BootEstimate
from policies.vms.machine import VmAccount
from policies.vms.vm import VmInput, VmState

_QUANTILE = 0.8
"""Above the median, since a VM that comes late costs more than one that comes early: a late event is priced as 20
events in the cloud (``policies.money.pricing``). That price alone would call for 0.95, but 0.95 of 20 boots is the
slowest but one, so two boots that hung would count for long. At 0.8 the slowest boot counts while at most four are
known, the configured time among them; from five on, one boot in five may be slower."""

_KEPT = 20
"""The latest boots count: an image, a size or a region may change."""

_SLOW = 2
"""A boot that takes this many times the configured time is reported."""

_GIVEN_UP = frozenset({VmInput.OVERDUE, VmInput.STOP, VmInput.RECLAIMED})
"""The ends of a boot that would have gone on. A launch that failed tells nothing about those that succeed."""


class BootHistory:
    """The latest boots of all VMs, whatever their sizes: an order does not know which size the cloud will have.

    Args:
        configured_s: the configured time.
    """

    def __init__(self, configured_s: float) -> None:
        self._configured_s = configured_s
        self._seen_s: deque[float] = deque(maxlen=_KEPT)

    @property
    def seen_s(self) -> tuple[float, ...]:
        """Return the latest boots that were seen, the oldest first."""
        return tuple(self._seen_s)

    def restore(self, seen_s: Iterable[float]) -> None:
        """Continue with the boots that an earlier gateway saw."""
        self._seen_s = deque(seen_s, maxlen=_KEPT)

    @property
    def _known_s(self) -> tuple[float, ...]:
        return (self._configured_s, *self._seen_s)[-_KEPT:]

    def ended(self, happened: VmInput, took_s: float) -> None:
        """Note that a VM does not boot any more.

        The time of a boot that was given up is a lower bound. It counts if it is longer than what was expected.

        Args:
            happened: how it ended.
            took_s: the time since its order.
        """
        if happened is VmInput.READY or (happened in _GIVEN_UP and took_s > _quantile(self._known_s)):
            self._seen_s.append(took_s)

    def estimate(self, booting_s: Iterable[float] = ()) -> BootEstimate:
        """Return how long the next boot will take.

        Args:
            booting_s: how long each VM that boots has been booting. One that boots for longer than expected counts as
                a boot of that length.
        """
        known_s = self._known_s
        expected_s = _quantile(known_s)
        late_s = [each_s for each_s in booting_s if each_s > expected_s]
        return BootEstimate(self._configured_s, _quantile((*known_s, *late_s)), len(self._seen_s) + len(late_s))


def _quantile(times_s: Iterable[float]) -> float:
    """Return the shortest of the times that enough of them do not exceed."""
    ordered_s = sorted(times_s)
    return ordered_s[math.ceil(_QUANTILE * len(ordered_s) - 1e-9) - 1]


def slow_boots(machines: Iterable[VmAccount], at_s: float, configured_s: float, patience_s: float) -> tuple[str, ...]:
    """Return which VMs have been starting for more than twice the configured time, in words that do not change."""
    return tuple(
        f"{machine.name} has been starting for more than {_SLOW * configured_s:g} s, {_SLOW} times what boot says; it "
        f"is terminated after {patience_s:g} s"
        for machine in machines
        if machine.state is VmState.STARTING and at_s - machine.since_s > _SLOW * configured_s
    )
