"""The loss of a lane."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a lane was lost, and when on the gateway's clock."""

    reason: str
    at_s: float
