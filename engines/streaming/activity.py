"""Whether Spark works for a query on a host: decides which queries are suspects when Spark's JVM exits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from infra.clock import Clock

_FATAL: Final = "java.lang.OutOfMemoryError"
# A JVM that exits interrupts its work some moments before the host notices the exit.
_JUST_NOW_S: Final = 5.0


class Activity:
    """Records when Spark runs a query; any thread may call.

    Args:
        clock: time.

    Attributes:
        since_s: when Spark began its latest work for the query.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._running = 0
        self._failed_s: float | None = None
        self._fatal_s: float | None = None
        self.since_s = clock.now()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record that Spark runs the query while the block lasts, and whether it fails."""
        with self._lock:
            self.since_s = self.since_s if self._running else self._clock.now()
            self._running += 1
        try:
            yield
        except Exception as error:
            self._failed_s = self._clock.now()
            if _FATAL in _text(error):
                self._fatal_s = self._failed_s
            raise
        finally:
            with self._lock:
                self._running -= 1

    @property
    def ran_just_now(self) -> bool:
        """Whether Spark runs the query, or its work failed a few seconds ago."""
        return self._running > 0 or self._is_just_now(self._failed_s)

    @property
    def ran_out_of_memory_just_now(self) -> bool:
        """Whether Spark reported this a few seconds ago; a JVM exits if more than one task is short of memory."""
        return self._is_just_now(self._fatal_s)

    def _is_just_now(self, at_s: float | None) -> bool:
        return at_s is not None and self._clock.now() - at_s < _JUST_NOW_S


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # the text comes from the JVM, which may have exited
        return ""
