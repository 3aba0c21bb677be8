"""The Spark driver at home is killed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import psutil
import pytest

from tests.connectors.ports import free_ports
from tests.e2e.harness import end_hosts, parts_in, until
from tests.faults.figures import Figures, Measure, Scale, only_full
from tests.faults.senders import BUNCH, HttpSender
from tests.faults.town import TownGateway, account, all_arrived, file_rows, query

# What one Spark at home answers at once although another one boots beside it: a backlog would be measured, else.
PAUSE_S = 0.5
READY = "a standby of the private engine host is ready"
COLD_GOAL_S, STANDBY_GOAL_S = 30.0, 5.0


class Site:
    """A gateway that receives events by HTTP and writes files."""

    def __init__(self, folder: Path, *, standby: bool) -> None:
        api_port, http_port = free_ports(2)
        self.out = folder / "out"
        source = {"type": "http", "listen": f"127.0.0.1:{http_port}"}
        posted = query(source, {"type": "file", "path": str(self.out)})
        self.gateway = TownGateway(folder, {"posted": posted}, api_port, private={"standby": standby})
        self.sender = HttpSender(http_port, PAUSE_S)

    def settle(self) -> None:
        """Compare the results with the ledger."""
        self.sender.stop()
        all_arrived({self.sender: lambda: file_rows(self.out)})
        self.gateway.drain()
        wrong = account(self.sender, file_rows(self.out))
        assert not wrong, wrong

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
def site(tmp_path: Path, *, standby: bool) -> Iterator[Site]:
    site = Site(tmp_path, standby=standby)
    yield site
    site.close()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "standby",
    [
        pytest.param(False, id="cold", marks=only_full("its short form is in test_two_sites_under_fire")),
        pytest.param(True, id="standby", marks=only_full("its short form is tests/e2e/test_standby.py")),
    ],
)
def test_the_spark_driver_at_home_killed(site: Site, scale: Scale, figures: Figures, *, standby: bool) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    site.gateway.start_ready()
    site.sender.start()
    times_s = []
    for kill in range(25):
        if standby:
            until(lambda kill=kill: site.gateway.log.read_text().count(READY) > kill, "a host stands by")  # type: ignore[misc]
        time.sleep(chance.uniform(1, 3))
        site.driver().kill()
        killed_s, after = time.monotonic(), site.sender.taken[-1] + BUNCH
        until(lambda after=after: site.newest() > after, "events that came after the kill are answered")  # type: ignore[misc]
        times_s.append(time.monotonic() - killed_s)
    site.settle()
    goal_s = STANDBY_GOAL_S if standby else COLD_GOAL_S
    figures.add(
        f"Spark driver at home: kill -9, {'with a standby' if standby else 'cold'}",
        Measure("resumed (median)", median(times_s), goal_s, "s"),
        Measure("resumed (most)", max(times_s), goal_s, "s"),
        times=len(times_s),
        outcome=f"{len(site.sender.taken):,} events: 0 lost, 0 twice, 0 out of order",
    )
