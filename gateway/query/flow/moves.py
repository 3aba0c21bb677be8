"""What is known of a lost lane, and of its runs on their way elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loss:
    """Why and when, on the gateway's clock, a lane was lost."""

    reason: str
    at_s: float


@dataclass(slots=True)
class Move:
    """The runs of a lost lane on their way elsewhere; ``left`` are those that no other lane has yet."""

    lane: str
    loss: Loss
    runs: int
    left: set[int]
    first_at_s: float | None = None
