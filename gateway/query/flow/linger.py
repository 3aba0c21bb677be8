"""How long a run lingers before it is closed. Pure: the waiting runs and the service rate are arguments."""

from __future__ import annotations

# However large the backlog, a run is never delayed longer than this multiple of its linger.
FACTOR_MAX = 10.0
# A run with more work than this would make micro-batches long, and be too much to switch at a time.
RUN_WORK_S = 0.25


class Linger:
    """Lets runs grow while a query is behind (decisions 0060 and 0154).

    While more runs wait than one micro-batch takes, a run lingers longer in proportion: its events would wait for those
    anyway. Fewer, larger runs are served sooner while the cost of a run does not come from its events.

    Args:
        linger_s: how long a run lingers while the query is not behind; it never lingers less.
        batch_runs: how many runs one micro-batch takes.
    """

    def __init__(self, linger_s: float, batch_runs: int) -> None:
        self._least_s = linger_s
        self._batch_runs = batch_runs
        self._used_s = linger_s
        self._last: tuple[float, int] | None = None

    def next_s(self, waiting_runs: int, served_per_s: float) -> float:
        """Return how long the next run lingers.

        Args:
            waiting_runs: runs that wait for a lane or, at home, behind the present micro-batch.
            served_per_s: events that a lane serves a second; 0 if unknown.
        """
        wanted_s = self._least_s * min(FACTOR_MAX, waiting_runs / self._batch_runs)
        if self._last is not None and served_per_s > 0:
            lingered_s, events = self._last
            wanted_s = min(wanted_s, lingered_s * RUN_WORK_S * served_per_s / events)
        self._used_s = max(self._least_s, wanted_s)
        return self._used_s

    def cut(self, events: int) -> None:
        """Note that a run of this many events was closed after the last ``next_s``."""
        self._last = (self._used_s, events)
