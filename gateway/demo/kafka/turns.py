"""When Spark carried which partitions by itself, as a gateway's log tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

_TURN: Final = re.compile(
    r"query \S+: (?P<who>Spark carries|the gateway takes over) (?P<places>[^\s,]+/\d+(?:, [^\s,]+/\d+)*) "
    r"(?:from now on|after [\d.]+ s: (?P<reason>.*))"
)


class CarryTurn(msgspec.Struct, frozen=True, kw_only=True):
    """Some partitions change hands.

    Attributes:
        at_s: in seconds since 1970.
        places: the partitions, as ``<topic>/<partition>``.
        spark: whether Spark carries them from now on; otherwise the gateway.
        reason: why the gateway takes over.
    """

    at_s: float
    places: tuple[str, ...]
    spark: bool
    reason: str = ""


class HandOver(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway carries partitions that Spark carried before.

    Attributes:
        partitions: their numbers.
        at_s: when it took over, in seconds after the first mail was due.
        lasted_s: until Spark carried them again, or the run's end.
        returned: whether Spark carried them again.
        reason: why the gateway took over.
    """

    partitions: tuple[int, ...]
    at_s: float
    lasted_s: float
    returned: bool
    reason: str


def turns_in(log: Path) -> list[CarryTurn]:
    """Return the turns that a gateway's log tells, in order; lines of other kinds are passed over.

    Raises:
        OSError: it cannot be read.
    """
    return list(_turns(log.read_text(encoding="utf-8", errors="replace").splitlines()))


def _turns(lines: Sequence[str]) -> Iterator[CarryTurn]:
    for line in lines:
        try:
            said = json.loads(line)
            turn, at_s = _TURN.match(said["message"]), datetime.fromisoformat(said["time"]).timestamp()
        except (ValueError, KeyError, TypeError):
            continue  # of a library, or half a line
        if turn is not None:
            places = tuple(turn["places"].split(", "))
            yield CarryTurn(at_s=at_s, places=places, spark=turn["who"] == "Spark carries", reason=turn["reason"] or "")


def carried_by_spark(turns: Sequence[CarryTurn]) -> set[str]:
    """Return the partitions that Spark carries after these turns."""
    found: set[str] = set()
    for turn in turns:
        found = found | set(turn.places) if turn.spark else found - set(turn.places)
    return found


def hand_overs(turns: Sequence[CarryTurn], begins_s: float, ends_s: float) -> tuple[HandOver, ...]:
    """Return the hand-overs among turns, from the first mail on.

    Args:
        turns: in order.
        begins_s: when the first mail was due, in seconds since 1970.
        ends_s: the end of the run.
    """
    found = []
    for index, turn in enumerate(turns):
        if turn.spark or turn.at_s < begins_s:
            continue
        later = (other for other in turns[index + 1 :] if other.spark and set(other.places) & set(turn.places))
        back = next(later, None)
        until_s = ends_s if back is None else back.at_s
        found.append(
            HandOver(
                partitions=tuple(int(place.rpartition("/")[2]) for place in turn.places),
                at_s=turn.at_s - begins_s,
                lasted_s=max(0.0, until_s - turn.at_s),
                returned=back is not None,
                reason=turn.reason,
            )
        )
    return tuple(found)
