"""Joins the results of the parts of a keyed query. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

from gateway.core.exchange.events import A
from gateway.core.exchange.instructions import Release


class Joint(Generic[A]):
    """Releases the results of a run once every part has released its own.

    A part answers its next run only when the sink has the results of the last one, so it holds one run of each part.

    Args:
        parts: how many parts there are.
        join: returns the results of all parts, given in the order of the parts, as one.
    """

    def __init__(self, parts: int, join: Callable[[Sequence[A]], A]) -> None:
        self._parts = parts
        self._join = join
        self._waiting: dict[int, dict[int, Release[A]]] = {}

    def add(self, part: int, release: Release[A]) -> Release[A] | None:
        """Add the results of one part; return those of all parts if they are complete.

        Raises:
            ValueError: the parts do not answer the same ranges of seq, or one answers twice. Nothing has changed.
        """
        of_run = self._waiting.get(release.first_seq, {})
        other = next(iter(of_run.values()), release)
        if part in of_run or other.last_seq != release.last_seq:
            raise ValueError(
                f"part {part} releases {release.first_seq}-{release.last_seq}, and parts {sorted(of_run)} have "
                f"released {other.first_seq}-{other.last_seq}"
            )
        self._waiting.setdefault(release.first_seq, of_run)[part] = release
        if len(of_run) < self._parts:
            return None
        del self._waiting[release.first_seq]
        return self._joined([of_run[each] for each in range(self._parts)])

    @property
    def waiting(self) -> int:
        """How many runs wait for a part."""
        return len(self._waiting)

    def _joined(self, releases: Sequence[Release[A]]) -> Release[A]:
        events = sum(each.events for each in releases)
        arrival_s = sum(each.arrival_s * each.events for each in releases) / events if events else releases[0].arrival_s
        return Release(
            releases[0].first_seq,
            releases[0].last_seq,
            self._join([each.results for each in releases]),
            events,
            arrival_s,
            any(each.late for each in releases),
        )
