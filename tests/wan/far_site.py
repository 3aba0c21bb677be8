"""A whole gateway at home and its VM behind a WAN, with ledgers of everything sent and delivered."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from gateway.views.logfile import as_text
from infra.wan import Wan
from tests.e2e.harness import counts_by_lane, rows_in
from tests.wan.wan_site import DEADLINE_S, ended

ROOT = Path(__file__).parents[2]
FAR_GATEWAY = str(Path(__file__).with_name("far_gateway.py"))
LINKED_S = 240.0  # two Sparks may have to start first, on a busy machine
# Half of all events go to the VM from early on, however idle home is.
EAGER = {
    "share": "50%",
    "start_vm_above": "20ms",
    "send_above": "10ms",
    "keep_vm_above": "5ms",
    "keep_vm_bytes": "0B",
    "tolerance": "0s",
}
TALLIES = re.compile(r"query q: [\d,]+ events \((.*?)\)")


@dataclass
class FarGateway:
    """A gateway process at home whose log is read as it comes; ``said`` has its lines with their times."""

    process: Process
    folder: Path
    said: list[tuple[float, str]] = field(default_factory=list)

    async def until(self, text: str, *, since: int = 0) -> float:
        """Return when the first line with ``text`` came, among those from number ``since`` on."""
        while True:
            for at_s, line in self.said[since:]:
                if text in line:
                    return at_s
            since = len(self.said)
            await self._read()

    async def drained(self) -> None:
        """Wait for a successful end."""
        assert self.process.stdout is not None
        async with asyncio.timeout(LINKED_S + DEADLINE_S):
            while not self.process.stdout.at_eof():
                line = await self.process.stdout.readline()
                self.said.append((time.monotonic(), as_text(line.decode())))
            assert await self.process.wait() == 0, self.tail()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(LINKED_S):
            line = await self.process.stdout.readline()
        assert line, f"the gateway ended:\n{self.tail()}"
        self.said.append((time.monotonic(), as_text(line.decode())))

    def tail(self) -> str:
        return "\n".join(line for _, line in self.said[-40:])

    @property
    def events_by_lane(self) -> dict[str, int]:
        """The gateway's own counts, which it prints at its end."""
        (found,) = [match[1] for _, line in self.said if (match := TALLIES.search(line))]
        return counts_by_lane(found)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All results, in order of release."""
        return rows_in(self.folder / "out")


async def far_gateway(
    wan: Wan,
    folder: Path,
    *,
    events: int,
    rate_per_s: int,
    text: Callable[[int], str] = lambda number: f"event {number}",
    slot: str = "500ms",
    environment: Mapping[str, str] | None = None,
    spark: bool = False,
    vms: int = 1,
    warm: bool = False,
    **more: Any,
) -> FarGateway:
    """Start a gateway over ``events`` events, with its VMs at separate sites.

    Args:
        wan: without VMs.
        folder: for all of its files.
        events: how many events.
        rate_per_s: how many a second.
        text: the text of the event with a number.
        slot: the gateway's slot.
        environment: for all its processes, in addition to the present one.
        spark: whether its engine hosts are real ones, started before it accepts events.
        vms: the largest number of VMs.
        warm: whether the VMs' hosts are started before it accepts events, also without Spark.
        more: other settings of the query.
    """
    sites = [await wan.add(f"vm-{number + 1}") for number in range(max(1, vms))]
    lines = [json.dumps({"id": number, "text": text(number)}) for number in range(events)]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    query = {
        "source": {"type": "file", "path": "in.jsonl", "replay": {"rate": f"{rate_per_s}/s"}},
        "schema": "id BIGINT, text STRING",
        "sql": "SELECT id, text AS lane FROM events",
        "sink": {"type": "file", "path": "out"},
        "qos": {"latency": "1s"},
        "runs": {"max_events": 20, "linger": "50ms"},
        "switching": EAGER,
        # Hosts without Spark know no dictionaries.
        "payload": {"compress": "auto" if spark else "none"},
        **more,
    }
    config = {
        "gateway": {"state_dir": "state", "slot": slot, "api": {"listen": "127.0.0.1:0"}, "orphan_after": "120s"},
        "cloud": {
            "provider": "process",
            "max_vms": vms,
            "boot": "1s",
            "warm": spark or warm,
            "namespaces": {site.namespace: site.address for site in sites},
            "billing": {"period": "600s", "minimum": "600s", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
            "budget": {"usd_per_day": 5},
        },
        "queries": {"q": query},
    }
    with (folder / "config.yaml").open("w") as file:
        YAML(typ="safe").dump(config, file)
    known = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    given = [str(folder / "config.yaml"), str(folder / "report.json")]
    if spark:
        given = ["-m", "gateway", "run", given[0], "--until-drained", "--report", given[1]]
    else:
        given = [FAR_GATEWAY, *given]
    process = await asyncio.create_subprocess_exec(
        *wan.home.command(sys.executable, *given),
        stdout=PIPE,
        stderr=STDOUT,
        env=known,
    )
    return FarGateway(process, folder)


async def gone(gateway: FarGateway) -> None:
    """Kill the process, whatever it is doing."""
    await ended(gateway.process)
