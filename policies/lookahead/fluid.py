"""The backlog of a query as a fluid: what waits later, how many VMs that calls for, and how many may be given back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_RECOVERED_BOOTS = 1.0
"""What has piled up is gone so many boots after the VMs serve; a faster recovery would need more VMs."""


class Fluid(NamedTuple):
    """What a query's events and engines will do, if nothing changes.

    Attributes:
        rate: events that come per second.
        waiting: events that wait or are processed.
        home_rate: events that home completes per busy second.
        vm_rate: the same of a VM.
    """

    rate: float
    waiting: float
    home_rate: float
    vm_rate: float

    def capacity(self, vms: int) -> float:
        """Return how many events per second home and so many VMs complete."""
        return self.home_rate + vms * self.vm_rate

    def latencies_s(self, times_s: Iterable[float], ready_in_s: Iterable[float]) -> Iterator[float]:
        """Yield how long an event that comes then will wait for those before it, if no further VM is launched.

        Args:
            times_s: seconds from now, ascending.
            ready_in_s: when each VM serves, in seconds from now.
        """
        starts_s = sorted(ready_in_s)
        waiting, now_s, serving = self.waiting, 0.0, 0
        for at_s in times_s:
            while serving < len(starts_s) and starts_s[serving] <= at_s:
                until_s = max(now_s, starts_s[serving])
                waiting = max(0.0, waiting + (self.rate - self.capacity(serving)) * (until_s - now_s))
                now_s, serving = until_s, serving + 1
            capacity = self.capacity(serving)
            waiting = max(0.0, waiting + (self.rate - capacity) * (at_s - now_s))
            now_s = at_s
            yield waiting / capacity

    def latency_s(self, in_s: float, ready_in_s: tuple[float, ...]) -> float:
        """Return the same for one time."""
        return next(self.latencies_s((in_s,), ready_in_s))


def ordered(fluid: Fluid, ready_in_s: tuple[float, ...], boot_s: float, target_s: float, most: int) -> int:
    """Return how many VMs to launch now, so that the target is kept, or kept again a boot after they serve.

    Args:
        fluid: the query.
        ready_in_s: when each VM that there is serves, in seconds from now.
        boot_s: when a VM that is launched now serves.
        target_s: the promised latency.
        most: at most so many.
    """
    if fluid.latency_s(boot_s, ready_in_s) <= target_s:
        return 0
    recovered_s = boot_s * (1.0 + _RECOVERED_BOOTS)
    for count in range(most + 1):
        standing = (*ready_in_s, *(boot_s,) * count)
        if fluid.latency_s(recovered_s, standing) <= target_s:
            return count
    return most


def needed(fluid: Fluid, there: int, within_s: float, target_s: float) -> int:
    """Return how many of the VMs to keep: with fewer of them, the target would be missed within a time.

    Args:
        fluid: the query, with the highest rate that its uncertainty allows.
        there: how many VMs there are.
        within_s: a boot and a billing period.
        target_s: the promised latency.
    """
    for count in range(there):
        # In a fluid the backlog grows or shrinks all the time, so its two ends tell all.
        worst_s = max(fluid.latency_s(each, (0.0,) * count) for each in (0.0, within_s))
        if worst_s <= target_s:
            return count
    return there
