"""Which queries are suspected when an engine host ends, and in which order each is tried alone. Pure.

A query can end the host that it shares with others, for instance by using up the memory of its JVM. The host itself
names the queries whose micro-batch was running when it noticed that its JVM had ended. Where the whole host process is
gone, nobody is suspected at first: machines reboot and operators kill. If the next host is lost soon after, the
suspects are the queries that waited for answers both times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

REPEATED_WITHIN_S = 900.0
"""Two losses of a host within this time are taken to have one cause."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A host that was lost.

    Attributes:
        at_s: when, on the gateway's monotonic clock.
        waiting_s: for each query that waited for answers from the host, for how long it had got none.
        named: the queries that the host itself named as it ended.
    """

    at_s: float
    waiting_s: Mapping[str, float]
    named: Sequence[str] = ()


class Blame:
    """Remembers the last loss of one host, to compare it with the next."""

    def __init__(self) -> None:
        self._last: Loss | None = None

    def suspects(self, loss: Loss) -> tuple[str, ...]:
        """Return the queries to try alone, the most suspicious first.

        The query that has waited longest comes first: its micro-batch is the one that did not end.
        """
        last, self._last = self._last, loss
        if loss.named:
            names = list(loss.named)
        elif last is not None and loss.at_s - last.at_s <= REPEATED_WITHIN_S:
            before = set(last.waiting_s) | set(last.named)
            names = [name for name in loss.waiting_s if name in before]
        else:
            names = []
        return tuple(sorted(names, key=lambda name: (-loss.waiting_s.get(name, 0.0), name)))
