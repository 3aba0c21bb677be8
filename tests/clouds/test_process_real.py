"""The process provider with the real engine host: it listens, is pinned, and leaves no JVM behind."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from infra.clock import SystemClock
from infra.clouds.cpus import available_cpus
from infra.clouds.process import ProcessCloud
from infra.link.keys.trust import Authority, UserData, new_token


@pytest.mark.spark
async def test_a_real_engine_host_comes_up_and_goes_with_all_it_started(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path / "ca")
    cpu = str(available_cpus()[-1])
    cloud = ProcessCloud(tmp_path / "cloud", SystemClock(), max_vms=1, cpu_sets=[cpu])
    told = UserData(host="real", ca_pem=authority.ca_pem, token=new_token())
    node = await cloud.create("one", {"gateway": "g1"}, told.to_json())
    assert (node.host, node.state, node.boot) == ("real", "running", "real")
    (leader,) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(process.info["cmdline"] or ()) and os.getsid(process.pid) == process.pid
    ]
    assert leader.cpu_affinity() == [int(cpu)]
    family = [leader, *leader.children(recursive=True)]
    await cloud.destroy(node.id)
    assert not [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert await cloud.list({}) == []
