"""When VMs that are wanted ahead of time may be started: noise must cost no more than one change a billing period.

A limit that is really broken is equation 1's business, and that does not wait.
"""

from __future__ import annotations


class CoolDown:
    """Holds starts back for a billing period after the last change.

    A change may be of several VMs. A rise that was foreseen when it began is one change, though its VMs are asked for
    one after the other, and so is a dip that was foreseen with what comes after it: noise is not foreseen. A VM is
    never given back within its period, so ends need no such rest.

    Args:
        period_s: length of a billing period.
        same_s: a rest that is shorter counts as none, as slots do not end to the millisecond.
    """

    def __init__(self, period_s: float, same_s: float = 0.0) -> None:
        self._period_s = period_s
        self._same_s = same_s
        self._changed_s: float | None = None
        self._to = 0

    def left_s(self, there: int, at_s: float) -> float:
        """Return for how long no VM is started beside those that are there."""
        if self._changed_s is None or there < self._to:
            return 0.0
        left_s = self._changed_s + self._period_s - at_s
        return left_s if left_s > self._same_s else 0.0

    def started(self, there: int, at_s: float, to: int) -> None:
        """Note that a VM was started.

        Args:
            there: how many there are with it.
            at_s: now.
            to: how many are wanted, or foreseen to be wanted within a billing period.
        """
        over = self._changed_s is None or at_s - self._changed_s >= self._period_s - self._same_s
        if over or there > self._to:
            self._changed_s, self._to = at_s, max(there, to)

    def ended(self, there: int, at_s: float, to: int) -> None:
        """Note that a VM is terminated because no query wanted it.

        Args:
            there: how many there are without it.
            at_s: now.
            to: as above.
        """
        self._changed_s, self._to = at_s, max(there, to)
