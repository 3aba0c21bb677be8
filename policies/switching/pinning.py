"""A pin: the part of a query's events that an operator has fixed."""

from __future__ import annotations

from math import inf
from typing import NamedTuple


class Pin(NamedTuple):
    """Which part of the events goes to VMs.

    Attributes:
        share: in [0, 1]; 0 keeps the query at home.
        until_s: when the pin ends.
    """

    share: float
    until_s: float = inf

    @property
    def why(self) -> str:
        """Return the pin as the reason of a decision."""
        if self.share == 0:
            return "it is pinned home"
        return (
            "it is pinned to the cloud"
            if self.share == 1
            else f"{self.share:.1%} of its events are pinned to the cloud"
        )
