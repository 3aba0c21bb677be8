"""Engines that are killed: workers in the cloud, and the Spark driver at home."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest

from tests.connectors.ports import free_ports
from tests.e2e.harness import end_hosts, parts_in, until
from tests.faults.figures import Figures, Scale
from tests.faults.senders import BUNCH, HttpSender
from tests.faults.town import TownGateway, account, all_arrived, file_rows, query

ELSEWHERE = re.compile(r"lane (vm-\d+) lost .*?(\d+) runs go elsewhere after (\d+) ms")
EAGER = {
    "share": "50%",
    "start_vm_above": "20ms",
    "send_above": "10ms",
    "keep_vm_above": "5ms",
    "keep_vm_bytes": "0B",
    "tolerance": "0s",
}
RESENT_GOAL_MS = 2000
# What one Spark at home answers at once although another one boots beside it: a backlog would be measured, else.
PAUSE_S = 0.5
READY = "a standby of the private engine host is ready"
COLD_GOAL_S, STANDBY_GOAL_S = 30.0, 5.0


class Site:
    """A gateway that receives events by HTTP and writes files."""

    def __init__(self, folder: Path, *, cloud: dict[str, Any], private: dict[str, Any]) -> None:
        api_port, http_port = free_ports(2)
        self.out = folder / "out"
        source = {"type": "http", "listen": f"127.0.0.1:{http_port}"}
        posted = {**query(source, {"type": "file", "path": str(self.out)}), "switching": EAGER}
        self.gateway = TownGateway(folder, {"posted": posted}, api_port, cloud=cloud, private=private)
        self.sender = HttpSender(http_port, PAUSE_S)

    def settle(self) -> None:
        """Compare the results with the ledger."""
        self.sender.stop()
        all_arrived({self.sender: lambda: file_rows(self.out)})
        self.gateway.drain()
        wrong = account(self.sender, file_rows(self.out))
        assert not wrong, wrong

    def vm_pids(self) -> list[int]:
        """The processes of the VMs that run."""
        records = [json.loads(path.read_text()) for path in (self.gateway.state_dir / "vms").glob("vm-*.json")]
        return [record["pid"] for record in records if record["stage"] == "running"]

    def elsewhere(self) -> list[tuple[int, int]]:
        """(runs, ms) of each lane that was lost so far."""
        found = ELSEWHERE.findall(self.gateway.log.read_text(errors="replace"))
        return [(int(runs), int(took_ms)) for _, runs, took_ms in found]

    def driver(self) -> psutil.Process:
        """The JVM of the private host on which the queries are open: the oldest one."""
        home = str(self.gateway.state_dir / "home")
        drivers = [
            process
            for process in psutil.process_iter(["name", "cmdline"])
            if process.info["name"] == "java" and any(home in word for word in process.info["cmdline"] or ())
        ]
        return min(drivers, key=lambda process: process.create_time())

    def newest(self) -> int:
        """The highest number in the newest parts."""
        parts = [self.out / str(part) for part in parts_in(self.out)[-2:]]
        return max((json.loads(line)["n"] for part in parts for line in part.read_bytes().splitlines()), default=-1)

    def close(self) -> None:
        """End all processes."""
        self.sender.give_up()
        if self.gateway.runs:
            self.gateway.kill()
        end_hosts(self.gateway.state_dir)


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(*, cloud: dict[str, Any] | None = None, private: dict[str, Any] | None = None) -> Site:
        sites.append(Site(tmp_path, cloud=cloud or {}, private=private or {}))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


@pytest.mark.timeout(7200)
def test_workers_killed_while_they_work(make_site: Callable[..., Site], scale: Scale, figures: Figures) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    site = make_site(cloud={"max_vms": 1, "boot": "1s"})
    site.gateway.start_ready()
    site.sender.start()
    kills = scale.times(1, 100)
    for kill in range(kills):
        until(lambda: "vm-" in str(site.gateway.status()["queries"]["posted"]["codecs"]), "a VM takes part")
        time.sleep(chance.uniform(0.2, 2.0))
        for pid in site.vm_pids():
            psutil.Process(pid).kill()
        until(lambda kill=kill: len(site.elsewhere()) > kill, "the lane is lost")  # type: ignore[misc]
    site.settle()
    took_ms = [each for _, each in site.elsewhere()]
    figures.add(
        "worker: kill -9",
        times=kills,
        outcome=f"{len(site.sender.taken):,} events: 0 lost, 0 twice, 0 out of order",
        figure=f"{sum(runs for runs, _ in site.elsewhere())} runs re-sent, {max(took_ms)} ms after detection (most)",
        goal=f"re-sent <= {RESENT_GOAL_MS} ms after detection",
    )


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("standby", [False, True], ids=["cold", "standby"])
def test_the_spark_driver_at_home_killed(
    make_site: Callable[..., Site], scale: Scale, figures: Figures, *, standby: bool
) -> None:
    kills = scale.times(0 if standby else 1, 25)
    if not kills:
        return  # the short form of it is tests/e2e/test_standby.py
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    site = make_site(private={"standby": standby})
    site.gateway.start_ready()
    site.sender.start()
    times_s = []
    for kill in range(kills):
        if standby:
            until(lambda kill=kill: site.gateway.log.read_text().count(READY) > kill, "a host stands by")  # type: ignore[misc]
        time.sleep(chance.uniform(1, 3))
        site.driver().kill()
        killed_s, after = time.monotonic(), site.sender.taken[-1] + BUNCH
        until(lambda after=after: site.newest() > after, "events that came after the kill are answered")  # type: ignore[misc]
        times_s.append(time.monotonic() - killed_s)
    site.settle()
    figures.add(
        f"Spark driver at home: kill -9, {'with a standby' if standby else 'cold'}",
        times=len(times_s),
        outcome=f"{len(site.sender.taken):,} events: 0 lost, 0 twice, 0 out of order",
        figure=f"resumed after {median(times_s):.1f} s (median), {max(times_s):.1f} s (most)",
        goal=f"<= {STANDBY_GOAL_S if standby else COLD_GOAL_S:g} s",
    )
