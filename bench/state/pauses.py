"""How long a query's events are held when it, or a part of its keys, moves with its state.

A query that groups by hour and key has 100,000 keys in its state, all of one open window. It moves to a VM across a WAN
of 70 ms and 50 Mbit/s and back. Then the same query, with 400 keys in four parts, of which some move. The sums are
compared with those of a plain loop. Needs root for the WAN.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planning.document import table

from infra.wan import WanSettings
from tests.connectors.ports import free_ports
from tests.e2e.harness import end_hosts, until
from tests.faults.town import EAGER, LAUNCHED_S, ONE_VM, TownGateway, file_rows
from tests.faults.two_sites import TwoSites

PARTS = 4
MOVES = 5
# Between files, each of which is a run: not more of them than the query can process.
PAUSE_S = 0.5
WAN = WanSettings(delay_s=0.035, rate_bits_per_s=50e6)
# Events of the same hour; the last one, years later, closes its window.
HOUR, LATER = "2026-01-01T00:00:00Z", "2030-01-01T00:00:00Z"
SQL = """
    SELECT key, count(*) AS events, sum(n) AS total
    FROM events GROUP BY key, window(at, '1 hour')
"""


WHOLE = {name: value for name, value in EAGER.items() if name != "share"}
IN_PARTS = {**EAGER, "share": "50%", "mode": "keys", "key": "key", "parts": PARTS}
WHOLE_QUERY = (WHOLE, 100_000, "100,000 keys, which move as a whole")
SOME_KEYS = (IN_PARTS, 100 * PARTS, f"{100 * PARTS} keys in {PARTS} parts, of which about half move")


class Lab:
    """A gateway with the query, and its files."""

    def __init__(self, folder: Path, sites: TwoSites, switching: dict[str, Any]) -> None:
        self.folder, self.events = folder, folder / "in"
        self.events.mkdir()
        query = {
            "sql": SQL,
            "event_time": {"column": "at", "lateness": "0s"},
            "source": {"type": "file", "path": str(self.events), "follow": True},
            "schema": "key STRING, n BIGINT, at TIMESTAMP",
            "sink": {"type": "file", "path": str(folder / "out")},
            "qos": {"latency": "1s"},
            "switching": {**switching, "max_pause": "60s"},
        }
        spark = {"master": "local[1]", "conf": {"spark.sql.shuffle.partitions": 2}}
        cloud = {**ONE_VM, **sites.cloud}
        self.gateway = TownGateway(
            folder, {"sums": query}, free_ports(1)[0], cloud=cloud, private={"spark": spark}, gateway={"slot": "1s"}
        )
        self.written = 0
        self.totals: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def write(self, keys: Iterator[str], at: str = HOUR) -> None:
        """Let a file appear with an event for each key."""
        lines = []
        for key in keys:
            self.totals[key] += self.written
            self.counts[key] += 1
            lines.append(json.dumps({"key": key, "n": self.written, "at": at}))
            self.written += 1
        new = self.folder / "new.jsonl"
        new.write_text("\n".join(lines) + "\n")
        new.rename(self.events / f"{self.written:09}.jsonl")

    def kept_state(self) -> dict[str, Any]:
        """Return where the query is, and how it moved, from the gateway's status; of one part that moved last."""
        found = self.gateway.status()["queries"]["sums"]["kept_state"] or {"place": "home", "moves": 0}
        parts = found.get("parts", {"": found}).values()
        return dict(max(parts, key=lambda part: (part["place"] != "home", part["moves"])))

    def is_away(self) -> bool:
        """Return whether the query is on the VM."""
        return str(self.kept_state()["place"]) != "home"

    def few(self) -> bool:
        """Write a few events, and return whether the query is on the VM."""
        time.sleep(PAUSE_S)
        self.write(f"key {self.written % self.keys + each}" for each in range(20))
        return self.is_away()

    def run(self, keys: int) -> list[dict[str, Any]]:
        """Fill the state, move the query there and back, and return what each move took."""
        self.keys = keys
        self.gateway.start_ready()
        for first in range(0, keys, 10_000):
            self.write(f"key {key}" for key in range(first, min(first + 10_000, keys)))
        until(lambda: self.gateway.status()["queries"]["sums"]["events_by_lane"].get("home", 0) >= keys, "all are in")
        found = []
        for _ in range(MOVES):
            until(self.few, "the query is on the VM", LAUNCHED_S)
            found.append(self.kept_state())
            until(lambda: not self.is_away(), "the query is at home", LAUNCHED_S)
            found.append(self.kept_state())
            print(found[-2:], flush=True)
        return found

    def closed(self, rows: int) -> bool:
        """Write an event of years later, and return whether all rows of the window are there.

        It takes two micro-batches: one moves the watermark, and the next one closes the window.
        """
        self.write(iter(["last"]), LATER)
        time.sleep(PAUSE_S)
        return len(file_rows(self.folder / "out")) >= rows

    def check(self) -> None:
        """Close the window, and compare its rows with the loop's."""
        expected = {(key, self.counts[key], self.totals[key]) for key in self.counts}
        until(lambda: self.closed(len(expected)), "the window is closed", LAUNCHED_S)
        found = [(row["key"], row["events"], row["total"]) for row in file_rows(self.folder / "out")]
        assert len(found) == len(expected), f"{len(found)} rows instead of {len(expected)}"
        assert set(found) == expected, "the sums are not those of one site"


def measured(lab: Lab, keys: int) -> list[dict[str, Any]]:
    """Move, check the results, and return what each move took."""
    try:
        moves = lab.run(keys)
        lab.check()
        lab.gateway.drain()
        return moves
    finally:
        if lab.gateway.runs:
            lab.gateway.kill()
        end_hosts(lab.gateway.state_dir)


def report() -> str:
    """Move the query, then parts of it, and return tables of how long its events were held."""
    sites = TwoSites(WAN)
    sites.start()
    try:
        with sites.at_home():
            texts = [moved(sites, switching, keys, what) for switching, keys, what in (WHOLE_QUERY, SOME_KEYS)]
    finally:
        sites.stop()
    return "\n\n".join(texts)


def moved(sites: TwoSites, switching: dict[str, Any], keys: int, what: str) -> str:
    """Move a query with so many keys, and return a table."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder:
        moves = measured(Lab(Path(folder), sites, switching), keys)
    rows = []
    for number, where in enumerate(("to the VM", "home")):
        some = moves[number::2]
        held_s = sorted(each["last_pause_s"] for each in some)
        rows.append((where, f"{held_s[len(held_s) // 2]:.2f} s", f"{held_s[-1]:.2f} s", f"{held_s[0]:.2f} s"))
    moved_mb = max(each["last_moved_bytes"] for each in moves) / 1e6
    return (
        f"{table(('move', 'events held (median)', 'most', 'least'), rows)}\n\n"
        f"{what}: {len(moves)} moves; {moved_mb:.1f} MB were copied for a move at most, nearly all of it ahead. "
        "The sums are those of a plain loop."
    )
