"""When something that failed is retried: pauses that double, and a time after which it is abandoned.

Pure: the caller says when. Used for queries that failed and for engine hosts that cannot be launched.
"""

from __future__ import annotations

from dataclasses import dataclass

_JUDGING_TIMES = 19.0
"""Bad rows of a query are searched for in at most a twentieth of the time: the search takes CPU from other queries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartTerms:
    """How often a failed query is opened again.

    Attributes:
        first_s: the pause after the first failure; it doubles with each further one, and never gets shorter.
        most_s: the longest pause. A query that ran for longer than this, without the time of searches for bad rows,
            starts again with the first pause.
        give_up_after_s: no retry once it has been failing for this long; None: no limit.
    """

    first_s: float = 5.0
    most_s: float = 300.0
    give_up_after_s: float | None = None


class Restarts:
    """Counts failures in a row and returns the pause before the next try.

    Args:
        terms: the pauses.

    Attributes:
        failures: how many failures there were in a row.
    """

    def __init__(self, terms: RestartTerms) -> None:
        self._terms = terms
        self._failing_since_s: float | None = None
        self._began_s: float | None = None
        self._pause_s = 0.0
        self.failures = 0

    def began(self, now_s: float) -> None:
        """Note that it runs from ``now_s`` on."""
        self._began_s = now_s

    def failed(self, now_s: float, judging_s: float = 0.0) -> float | None:
        """Note a failure.

        Args:
            now_s: now.
            judging_s: how long an engine host has looked for bad rows since ``began``, at the expense of other queries.

        Returns:
            The pause before the next try in seconds, or None if there is none.
        """
        ran_s = 0.0 if self._began_s is None else now_s - self._began_s - judging_s
        self._began_s = None
        if self._failing_since_s is None or ran_s > self._terms.most_s:
            self._failing_since_s = now_s
            self._pause_s = 0.0
            self.failures = 0
        self.failures += 1
        give_up_after_s = self._terms.give_up_after_s
        if give_up_after_s is not None and now_s - self._failing_since_s >= give_up_after_s:
            return None
        # 2.0 ** 1024 would overflow.
        pause_s = self._terms.first_s * 2.0 ** min(self.failures - 1, 60)
        self._pause_s = min(self._terms.most_s, max(pause_s, _JUDGING_TIMES * judging_s, self._pause_s))
        return self._pause_s
