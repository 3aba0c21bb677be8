"""What is known of a lost lane."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loss:
    """Why and when, on the gateway's clock, a lane was lost."""

    reason: str
    at_s: float
