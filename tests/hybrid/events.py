"""The input of the corpus: events in files, one file for each run, with some that come too late."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

RUNS: Final = 6
RUN_EVENTS: Final = 8
RUN_S: Final = 30
"""So much event time passes in a run. Within a run the events have no order."""
_LATE_RUNS: Final = range(RUNS // 2, RUNS)
"""These have an event that is so much older than all others that every window is closed."""
_LATE_S: Final = 3_600
LAST: Final = 2
"""So many runs come at the end, with one event a day later: they close all windows."""
START: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SHOPS: Final = "shop,label\n1,one\n2,two\n2,both\n"
SHOPS_DDL: Final = "shop INT, label STRING"

Event = dict[str, Any]


def runs(seed: int) -> list[list[Event]]:
    """Return the events of each run."""
    draw = random.Random(seed)
    found = []
    for number in range(RUNS):
        starts_s = RUN_S * number
        run = [_event(draw, starts_s + draw.uniform(0, RUN_S)) for _ in range(RUN_EVENTS)]
        if number in _LATE_RUNS:
            run.insert(draw.randrange(RUN_EVENTS), _event(draw, -_LATE_S + draw.uniform(0, 60)))
        found.append(run)
    # Conditions on other columns than the time are evaluated below a watermark: those on the amount admit these.
    found += [[{**_event(draw, 86_400.0 + number), "amount": 5}] for number in range(LAST)]
    for seq, event in enumerate(event for run in found for event in run):
        event["id"] = f"e{seq:03}" if draw.random() < 0.9 else "e000"
    return found


def counted(events: Iterable[Event], which: str) -> list[Event]:
    """Return those events that count for an oracle; see ``StreamCase``."""
    begin, end = START.isoformat(), (START + dt.timedelta(days=1)).isoformat()
    match which:
        case "all":
            return list(events)
        case "not late":
            return [event for event in events if event["at"] >= begin]
        case _:
            return [event for event in events if begin <= event["at"] < end]


def _event(draw: random.Random, at_s: float) -> Event:
    at = START + dt.timedelta(milliseconds=round(1000 * at_s))
    return {
        "customer": draw.choice(["c1", "c2", "c3", "C1", "", None]),
        "shop": draw.choice([1, 2, 3, None]),
        "amount": draw.randint(0, 9),
        "price": draw.choice([0.0, -0.0, 1.5, 2.25, None]),
        "total": draw.choice([None, 1.00, 2.50]),
        "ok": draw.choice([True, False, None]),
        "note": draw.choice(["c1", "n", None]),
        "tags": draw.choice([[], ["x"], ["x", "y"], None]),
        "meta": draw.choice([None, {"a": 1, "b": "x"}, {"a": 2, "b": None}]),
        "at": at.isoformat(timespec="milliseconds"),
        "sent": (at + dt.timedelta(milliseconds=draw.randint(0, 20_000))).isoformat(timespec="milliseconds"),
    }


def put_run(folder: Path, number: int, run: Sequence[Event]) -> None:
    """Let a file with the events of a run appear, complete, in a folder."""
    new = folder.with_name(f"{folder.name}-{number:03}.new")
    new.write_text("".join(json.dumps(event) + "\n" for event in run))
    new.rename(folder / f"{number:03}.jsonl")
