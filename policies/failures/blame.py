"""Which queries are suspected when an engine host exits, and in which order each runs alone. Pure.

A query can end the host that it shares with others, for instance by using up the memory of its JVM. If the JVM exited
by itself, the host names the queries that Spark was running. If the host was killed or lost, no query is suspected at
first: machines reboot and operators kill. If the next host is lost soon after, the suspects are the queries that have
not completed what was in progress at the first loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

REPEATED_WITHIN_S = 900.0
"""Two losses of a host within this time are assumed to have one cause."""


@dataclass(frozen=True, slots=True)
class WaitingQuery:
    """A query that waited for answers of a lost host, or was being opened there.

    Attributes:
        for_s: how long it had no answer.
        committed_before: every event before this seq was in its sink; -1 while it is being opened.
        read_before: the first seq that it had not read.
    """

    for_s: float
    committed_before: int = -1
    read_before: int = 0


@dataclass(frozen=True, slots=True)
class HostLoss:
    """A host that was lost.

    Attributes:
        at_s: the time of the loss, on the gateway's monotonic clock.
        waiting: the queries that waited for it, by name.
        named: the queries that the host itself named when it exited, the most suspicious first.
    """

    at_s: float
    waiting: Mapping[str, WaitingQuery] = field(default_factory=dict)
    named: Sequence[str] = ()


class Blame:
    """Remembers the last loss of one host, to compare it with the next."""

    def __init__(self) -> None:
        self._last: HostLoss | None = None

    def suspects(self, loss: HostLoss) -> tuple[str, ...]:
        """Return the queries to try alone, the most suspicious first: those the host named, or the longest waiting."""
        last, self._last = self._last, loss
        if loss.named:
            return tuple(loss.named)
        if last is None or loss.at_s - last.at_s > REPEATED_WITHIN_S:
            return ()
        stuck = [name for name, now in loss.waiting.items() if _is_stuck(last.waiting.get(name), now)]
        return tuple(sorted(stuck, key=lambda name: (-loss.waiting[name].for_s, name)))


def _is_stuck(before: WaitingQuery | None, now: WaitingQuery) -> bool:
    """Return whether a query has not completed what it had read at the previous loss."""
    return before is not None and now.committed_before < before.read_before
