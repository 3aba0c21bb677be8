"""What went wrong in a simulated world."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(slots=True)
class FaultCounts:
    """How often something went wrong.

    Attributes:
        launches_failed: no VM was available.
        launches_hung: a VM was billed and never ready.
        vms_died: an engine host on a VM died.
        home_died: the private engine host died.
        notices: the cloud announced that it would reclaim a VM.
        reclaimed: the cloud reclaimed a VM that was still there, announced or not.
    """

    launches_failed: int = 0
    launches_hung: int = 0
    vms_died: int = 0
    home_died: int = 0
    notices: int = 0
    reclaimed: int = 0

    def __add__(self, other: FaultCounts) -> FaultCounts:
        """Return the sum of each."""
        return FaultCounts(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))
