"""Ten queries on one engine host: seven that work, and three that fail in three ways."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.harness import Gateway, end_hosts, parts_in, rows_in, until

GOOD = [f"good-{number}" for number in range(7)]
BAD = ("raises", "out-of-memory", "read-only")
RATE_PER_S = 20
FATAL_ID = 100
"""The event, 5 s after the first, at which one query ends its JVM and from which on one asks for too much memory."""

FUNCTIONS = """\
from pyspark.sql.functions import udf


@udf("string")
def _raise(text):
    raise ValueError("it always raises")


def raises(events):
    return events.select("id", _raise("text").alias("text"))
"""


class ReadOnly:
    """A folder that can be made read-only, also for root: for root it is a separate file system."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._is_mounted = os.geteuid() == 0
        if self._is_mounted:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "spillway-test", str(folder)], check=True)

    def take_away(self) -> None:
        """Make the folder read-only."""
        if self._is_mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)
        else:
            self.folder.chmod(0o555)

    def end(self) -> None:
        """Make the folder removable again."""
        if self._is_mounted:
            subprocess.run(["umount", str(self.folder)], check=True)
        else:
            self.folder.chmod(0o755)


def query(folder: Path, name: str, events: int, **what: str) -> dict[str, Any]:
    """Return a query as a config entry; its events come at ``RATE_PER_S``."""
    source = folder / f"{events}.jsonl"
    if not source.exists():
        lines = (json.dumps({"id": number, "text": f"event {number}"}) for number in range(events))
        source.write_text("\n".join(lines) + "\n")
    return {
        "source": {"type": "file", "path": str(source), "replay": {"rate": f"{RATE_PER_S}/s"}},
        "schema": "id BIGINT, text STRING",
        **what,
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "5s"},
        "runs": {"linger": "1s"},
    }


def queries(folder: Path, seconds: int, *, with_bad: bool, restart: str) -> dict[str, Any]:
    """Return the good queries, whose events come for so many seconds, and ``with_bad`` also those that ``restart``."""
    (folder / "failing_functions.py").write_text(FUNCTIONS)
    events = seconds * RATE_PER_S
    found = {
        name: query(folder, name, events, sql=f"SELECT id, concat(text, ' of {name}') AS text FROM events")
        for name in GOOD
    }
    if with_bad:
        memory = f"CASE WHEN id - {FATAL_ID} BETWEEN 0 AND 25 THEN length(repeat(text, 200000000)) ELSE 0 END"
        found["raises"] = query(folder, "raises", events, function="failing_functions:raises")
        found["out-of-memory"] = query(folder, "out-of-memory", events, sql=f"SELECT id, {memory} AS n FROM events")
        for name in ("raises", "out-of-memory"):
            found[name] |= {"dead_letters": {"most": "2%"}, "on_failure": {"restart": restart}}
        found["read-only"] = query(folder, "read-only", events, sql="SELECT id FROM events")
    return found


def with_one_that_ends_its_jvm(folder: Path, seconds: int) -> dict[str, Any]:
    """Return a good query, and one that ends the JVM of its engine host."""
    exits = f"CASE WHEN id = {FATAL_ID} THEN java_method('java.lang.System', 'exit', 3) ELSE text END"
    events = seconds * RATE_PER_S
    return {
        GOOD[0]: query(folder, GOOD[0], events, sql=f"SELECT id, concat(text, ' of {GOOD[0]}') AS text FROM events"),
        "exits": {
            **query(folder, "exits", events, sql=f"SELECT id, {exits} AS text FROM events"),
            "on_failure": {"restart": "1s..2s"},
        },
    }


def check_good(folder: Path, events: int, names: Sequence[str] = GOOD) -> None:
    """Check that each good query has exactly its results, in order."""
    for name in names:
        wanted = [{"id": number, "text": f"event {number} of {name}"} for number in range(events)]
        assert rows_in(folder / "out" / name) == wanted, name


def latencies_s(gateway: Gateway, name: str) -> list[float]:
    """Return, for each event of a query, the time from when it was due until the part with its result appeared."""
    log = gateway.state_dir / "queries" / name / "runs.log"
    head = json.loads(log.read_bytes().splitlines()[0].partition(b" ")[2])
    sink = gateway.folder / "out" / name
    found = []
    for part in parts_in(sink):
        path = sink / str(part)
        there_s = path.stat().st_mtime - head["started_wall_s"]
        found += [there_s - json.loads(line)["id"] / RATE_PER_S for line in path.read_bytes().splitlines()]
    return found


def play(
    folder: Path, seconds: int, *, with_bad: bool, restart: str = "1s..10s"
) -> tuple[int, Gateway, dict[str, float]]:
    """Run a gateway until it ends; return its exit code, and the median latency of each good query in seconds."""
    folder.mkdir()
    read_only = ReadOnly(folder / "out" / "read-only")
    ten = queries(folder, seconds, with_bad=with_bad, restart=restart)
    gateway = Gateway(folder, folder / "state", ten, {"max_vms": 0})
    try:
        gateway.start("--until-drained")
        if with_bad:
            until(lambda: len(parts_in(folder / "out" / "read-only")) > 2, "results before the folder is read-only")
            read_only.take_away()
        code = gateway.wait(900)
    finally:
        if gateway.process is not None and gateway.process.poll() is None:
            gateway.kill()
        end_hosts(gateway.state_dir)
        read_only.end()
    check_good(folder, seconds * RATE_PER_S)
    return code, gateway, {name: statistics.median(latencies_s(gateway, name)) for name in GOOD}
