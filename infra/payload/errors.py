"""The one error that bytes from outside can cause here."""

from __future__ import annotations


class PayloadError(ValueError):
    """A payload or a dictionary from the other site cannot be believed; the text says what is wrong with it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
