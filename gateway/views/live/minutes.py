"""What went through in each minute, as lines of the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gateway.config.words.units import SHARE
from gateway.query.flow.statistics import Tally
from policies.signals import HOME

EVERY_S: Final = 60.0


class _Sums(NamedTuple):
    """The sums of a query since it was opened first."""

    events: float
    results: float
    letters: float
    too_late: float
    shed: float
    weight: float
    total_s: float
    away: float
    sent_bytes: float

    @classmethod
    def of(cls, tally: Tally) -> _Sums:
        weight = tally.latency.weight
        away = sum(events for lane, events in tally.events_by_lane.items() if lane != HOME)
        counts = (tally.events, tally.results, tally.dead_letters, tally.too_late, tally.shed)
        return cls(*counts, weight, weight * tally.latency.mean_s, away, tally.sent_bytes)


_NOTHING: Final = _Sums(*(0 for _ in _Sums._fields))


class Minutes:
    """Compares the sums of each query once a minute."""

    def __init__(self) -> None:
        self._before: dict[str, _Sums] = {}
        self._next_s: float | None = None

    def lines(self, at_s: float, tallies: Mapping[str, Tally]) -> list[str]:
        """Return a line for each query through which something went in the last minute; none before it is over.

        Args:
            at_s: now, on a clock that does not jump.
            tallies: of all queries.
        """
        if self._next_s is None:
            self._next_s = at_s + EVERY_S
        if at_s < self._next_s:
            return []
        self._next_s = at_s + EVERY_S
        now = {name: _Sums.of(tally) for name, tally in tallies.items()}
        before, self._before = self._before, now
        news = ((name, sums, before.get(name, _NOTHING)) for name, sums in now.items())
        return [f"query {name}: {', '.join(_said(sums, old))}" for name, sums, old in news if sums != old]


def _said(now: _Sums, before: _Sums) -> Iterator[str]:
    new = _Sums(*(after - earlier for after, earlier in zip(now, before, strict=True)))
    yield f"{new.events:,} events, {new.results:,} results in the last minute"
    if new.weight > 0:
        yield f"mean latency {new.total_s / new.weight:.2f} s"
    if new.away:
        yield f"{SHARE.format(round(new.away / new.weight, 3))} of them on VMs with {new.sent_bytes / 1e6:,.1f} MB sent"
    for count, what in ((new.letters, "dead letters"), (new.too_late, "came too late"), (new.shed, "shed")):
        if count:
            yield f"{count:,} {what}"
