"""Errors of the WAN."""

from __future__ import annotations


class WanError(Exception):
    """A part of the WAN failed; the text says which, and what it answered."""


class WanUnavailableError(WanError):
    """No WAN can be created here; the text says why, and what would help."""
