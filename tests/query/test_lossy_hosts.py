"""A query over real links to host processes that lose, double and reorder a fifth of their answers, stop or die."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from gateway.query.flow.dispatcher import Loss
from policies.failures.overdue import Patience
from policies.signals import HOME
from tests.query.lossy_hosts import CLOCK, EVENTS, ORACLE, SEED, Hosts, deliver, hosts, results, running
from tests.support.waiting import until

__all__ = ["hosts"]


async def test_a_fifth_of_the_answers_lost_doubled_and_reordered_changes_nothing(tmp_path: Path, hosts: Hosts) -> None:
    print(f"seed {SEED}")
    patience = Patience(least_s=0.3, times=1.5, unknown_s=1.0, silences=1000.0)
    home, cloud = await hosts.start(HOME, 0.2), await hosts.start("vm-1", 0.2)
    async with running(tmp_path, home, patience) as query:
        await query.attach(cloud)
        query.pipeline.set_shares({HOME: 0.5, "vm-1": 0.5})
        await deliver(query)
        assert set(query.tally.events_by_lane) == {HOME, "vm-1"}
    assert results(tmp_path) == ORACLE


async def test_a_killed_worker_is_noticed_at_once_and_its_runs_go_elsewhere(
    tmp_path: Path, hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    home, cloud = await hosts.start(HOME, 0.0), await hosts.start("vm-1", 0.0)
    async with running(tmp_path, home) as query:
        await query.attach(cloud)
        hosts.processes["vm-1"].send_signal(signal.SIGSTOP)
        query.pipeline.set_shares({HOME: 0.5, "vm-1": 0.5})
        await until(lambda: not query.pipeline.lane_idle("vm-1"))
        killed_s = CLOCK.now()
        hosts.processes["vm-1"].kill()
        why = await asyncio.wait_for(cloud.lost(), 30)
        lost_s = CLOCK.now()
        query.pipeline.set_shares({HOME: 1.0})
        await query.detach("vm-1", Loss(why, lost_s))
        await deliver(query)
        (said,) = [text for text in caplog.messages if "go elsewhere" in text]
        print(f"noticed after {1000 * (lost_s - killed_s):.0f} ms; {said}")
        assert query.tally.events_by_lane == {HOME: EVENTS}
    assert results(tmp_path) == ORACLE


async def test_the_runs_of_a_worker_that_answers_heartbeats_only_go_elsewhere(tmp_path: Path, hosts: Hosts) -> None:
    patience = Patience(least_s=0.2, times=4.0, unknown_s=0.4, silences=3.0)
    home, cloud = await hosts.start(HOME, 0.0), await hosts.start("vm-1", 1.0)
    async with running(tmp_path, home, patience) as query:
        await query.attach(cloud)
        query.pipeline.set_shares({HOME: 0.5, "vm-1": 0.5})
        await deliver(query)
        assert query.tally.events_by_lane == {HOME: EVENTS}
    assert results(tmp_path) == ORACLE
