"""What the daemon writes about itself, readable also when a neighbour is away for an hour."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

# They report each try, several a second while a broker is away; what that means for a query we say ourselves.
_TALKATIVE = ("aiokafka", "botocore", "boto3", "urllib3", "aiohttp", "aiomqtt", "paho")
_SELDOM_S = 30.0


class Seldom(logging.Filter):
    """Lets the same place in the code speak once in ``_SELDOM_S``.

    Args:
        now: monotonic time in s.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._last_s: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See ``logging.Filter``; the places of a program are few, so is what is remembered."""
        place = (record.pathname, record.lineno)
        now_s = self._now()
        if now_s - self._last_s.get(place, -_SELDOM_S) < _SELDOM_S:
            return False
        self._last_s[place] = now_s
        return True


def begin_logging() -> None:
    """Log to stderr: our own words from INFO on, the libraries' warnings, and the same one seldom."""
    handler = logging.StreamHandler()
    seldom = Seldom()

    def quiet(record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in _TALKATIVE:
            return True
        return record.levelno >= logging.WARNING and seldom.filter(record)

    handler.addFilter(quiet)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", handlers=[handler])


def in_a_sentence(error: Exception) -> str:
    """Return what went wrong, with the path that it went wrong with."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; see that this user may read and write there"
    return str(error) or type(error).__name__
