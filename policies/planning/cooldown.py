"""When VMs that are wanted ahead of time may be started: noise must cost at most one change per billing period.

When a limit is broken, equation 1 decides, and that does not wait.
"""

from __future__ import annotations


class CoolDown:
    """Delays starts for a billing period after the last change.

    One change may consist of several VMs. A rise that was foreseen when it began is one change, though its VMs are
    ordered one after the other. So is a dip that was foreseen together with the rise after it, since noise is not
    foreseen. A VM is never terminated within its period, so ends need no such delay.

    Args:
        period_s: length of a billing period.
        same_s: a shorter delay counts as none, as slots do not end exactly on time.
    """

    def __init__(self, period_s: float, same_s: float = 0.0) -> None:
        self._period_s = period_s
        self._same_s = same_s
        self._changed_s: float | None = None
        self._to = 0

    def left_s(self, there: int, at_s: float) -> float:
        """Return how long no VM may be started beyond those that exist."""
        if self._changed_s is None or there < self._to:
            return 0.0
        left_s = self._changed_s + self._period_s - at_s
        return left_s if left_s > self._same_s else 0.0

    def started(self, there: int, at_s: float, to: int) -> None:
        """Note that a VM was started.

        Args:
            there: how many VMs there are, with this one.
            at_s: now.
            to: how many are wanted, or will be wanted within a billing period.
        """
        over = self._changed_s is None or at_s - self._changed_s >= self._period_s - self._same_s
        if over or there > self._to:
            self._changed_s, self._to = at_s, max(there, to)

    def ended(self, there: int, at_s: float, to: int) -> None:
        """Note that a VM is terminated because no query wanted it.

        Args:
            there: how many VMs there are without it.
            at_s: now.
            to: as above.
        """
        self._changed_s, self._to = at_s, max(there, to)
