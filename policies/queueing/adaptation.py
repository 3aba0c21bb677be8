"""Changes of the degree: what is registered to happen a time horizon ahead (section V-D).

A degree that is decided now is for the time ``horizon_s`` ahead, since a new instance takes that long to start. An
instance that is no longer wanted is cancelled at that time. Until it has shut down it can be used again, which costs
nothing, so such instances are used before new ones.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """The actions to take now.

    Attributes:
        reuse: instances whose cancellation is revoked: registered with the splitter again.
        start: new instances to deploy; they are registered when they are live.
        cancel: instances to unregister now; they finish what they have and shut down.
    """

    reuse: int
    start: int
    cancel: int


class Adaptation:
    """The instances of an operator, and their future cancellations.

    Args:
        instances: how many run at the start.
        horizon_s: TH, the time from the order of an instance until it is live.

    Attributes:
        horizon_s: the same; another value counts for later decisions.

    Raises:
        ValueError: a value is impossible.
    """

    def __init__(self, instances: int, horizon_s: float) -> None:
        if instances < 1 or horizon_s < 0:
            raise ValueError(f"{instances} instances with a start time of {horizon_s:g} s are impossible")
        self._wanted = instances
        self.horizon_s = horizon_s
        self._cancellations: list[tuple[float, int]] = []
        self._shutting_down = 0

    @property
    def wanted(self) -> int:
        """Return the degree that was decided last, for a time horizon ahead."""
        return self._wanted

    @property
    def registered(self) -> int:
        """Return how many instances are wanted or wait for their cancellation."""
        return self._wanted + sum(count for _, count in self._cancellations)

    @property
    def shutting_down(self) -> int:
        """Return how many cancelled instances still finish their events."""
        return self._shutting_down

    def decide(self, degree: int, at_s: float) -> Change:
        """Set a new optimal degree for the time ``horizon_s`` ahead; return what to do now.

        Raises:
            ValueError: the degree is less than 1.
        """
        if degree < 1:
            raise ValueError(f"an operator needs an instance, not {degree}")
        cancel = self._due(at_s)
        difference, self._wanted = degree - self._wanted, degree
        if difference <= 0:
            if difference:
                self._cancellations.append((at_s + self.horizon_s, -difference))
            return Change(reuse=0, start=0, cancel=cancel)
        kept = self._take_back(difference)
        revived = min(difference - kept, self._shutting_down)
        self._shutting_down -= revived
        # Instances that are cancelled at this moment were counted as shutting down: they simply stay.
        stayed = min(revived, cancel)
        return Change(reuse=revived - stayed, start=difference - kept - revived, cancel=cancel - stayed)

    def shut_down(self, count: int = 1) -> None:
        """Note that cancelled instances have shut down.

        Raises:
            ValueError: fewer were shutting down.
        """
        if count > self._shutting_down:
            raise ValueError(f"{count} instances are gone, but only {self._shutting_down} were shutting down")
        self._shutting_down -= count

    def _due(self, at_s: float) -> int:
        """Cancel the instances that are due; return their number."""
        due = sum(count for when_s, count in self._cancellations if when_s <= at_s)
        self._cancellations = [entry for entry in self._cancellations if entry[0] > at_s]
        self._shutting_down += due
        return due

    def _take_back(self, most: int) -> int:
        """Revoke cancellations that have not happened yet, the last ones first; return how many."""
        left = most
        while left and self._cancellations:
            when_s, count = self._cancellations.pop()
            if count > left:
                self._cancellations.append((when_s, count - left))
            left -= min(count, left)
        return most - left
