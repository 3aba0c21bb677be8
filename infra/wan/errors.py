"""What can go wrong with the WAN."""

from __future__ import annotations


class WanError(Exception):
    """Something of the WAN did not do what it was told; the text says what, and what it answered."""


class WanUnavailableError(WanError):
    """No WAN can be made here; the text says why, and what would help."""
