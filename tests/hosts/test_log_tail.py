"""If a private engine host exits while it boots, the error contains the end of its log."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from gateway.hosts.enrol import HomeHost
from gateway.hosts.hostkeeper import HostKeeper
from infra.clock import SystemClock
from infra.clouds.process import ProcessCloud
from infra.link.channel import LinkLost
from infra.link.keys.trust import Authority

WORKER = (sys.executable, str(Path(__file__).parents[1] / "support" / "failing_host.py"))
ROOT = Path(__file__).parents[2]


async def test_a_host_that_ends_while_it_boots_leaves_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    clock = SystemClock()
    machines = ProcessCloud(tmp_path / "home", clock, max_vms=1, worker_command=WORKER)
    authority = Authority.open(tmp_path / "trust")
    make_host = lambda: HomeHost(machines, authority, 60.0, clock, set())  # noqa: E731
    home = HostKeeper("the private engine host", make_host, {}, clock)
    async with asyncio.timeout(120):
        with pytest.raises(LinkLost) as lost:
            await home.connect()
        await home.end(keep=False)
    assert "said goodbye: the host ends: Spark did not start; its log ends: " in str(lost.value)
    assert "java.lang.OutOfMemoryError: no room for Spark here" in str(lost.value)
    assert await machines.list({}) == [], "the host and its log are gone"


async def test_of_a_machine_that_nobody_knows_there_are_no_last_words(tmp_path: Path) -> None:
    assert await ProcessCloud(tmp_path, SystemClock(), max_vms=1).log_tail("vm-0") == ""
