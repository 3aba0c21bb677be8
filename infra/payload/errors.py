"""The only error that bytes from outside can cause here."""

from __future__ import annotations


class PayloadError(ValueError):
    """A payload or a dictionary from the other site is invalid; the text says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
