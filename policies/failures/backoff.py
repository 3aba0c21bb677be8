"""How long to wait after failed launches."""

from __future__ import annotations

_MOST_S = 300.0
_TOLD_MOST_S = 86_400.0
_DOUBLINGS_MOST = 30


class Backoff:
    """Waits twice as long after each failure in a row, up to 5 minutes, or as long as the provider asks, up to a day.

    Args:
        first_s: the first wait.

    Attributes:
        retry_at_s: when the next try is allowed.
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._failures = 0
        self.retry_at_s = 0.0

    def failed(self, at_s: float, told_s: float = 0.0) -> None:
        """Note a failure, after which nothing may be tried for ``told_s``."""
        wait_s = self._first_s * 2.0 ** min(self._failures, _DOUBLINGS_MOST)
        self._failures += 1
        self.retry_at_s = at_s + max(min(wait_s, _MOST_S), min(told_s, _TOLD_MOST_S))

    def succeeded(self) -> None:
        """Start from the first wait again after the next failure."""
        self._failures = 0
