"""Cold process VMs: how they are started, recognised again, and ended together with all processes that they started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.clouds import processes
from infra.clouds.base import BootError, CapacityError
from infra.clouds.cpus import cloud_cpu_sets, cpu_numbers
from infra.clouds.process import Place, ProcessCloud
from infra.clouds.registry import Registry
from tests.clouds.contract import TAGS, user_data

MakeCloud = Callable[..., ProcessCloud]
Workers = Callable[[], list[psutil.Process]]


def host_facts(tmp_path: Path, node_id: str) -> dict[str, object]:
    facts: dict[str, object] = json.loads((tmp_path / "cloud" / node_id / "host.json").read_text())
    return facts


async def test_a_worker_gets_its_arguments_and_is_in_a_session_of_its_own(
    make_cloud: MakeCloud, tmp_path: Path
) -> None:
    cloud = make_cloud(cpu_sets=["1", "2"], master="local[1]")
    first = await cloud.create("one", TAGS, user_data("one"))
    second = await cloud.create("two", TAGS, user_data("two"))
    told = [host_facts(tmp_path, node.id) for node in (first, second)]
    assert [facts["arguments"]["--cpus"] for facts in told] == ["1", "2"]  # type: ignore[index]
    assert told[0]["arguments"]["--master"] == "local[1]"  # type: ignore[index]
    assert told[0]["arguments"]["--workdir"] == str(tmp_path / "cloud" / first.id)  # type: ignore[index]
    pid = int(str(told[0]["pid"]))
    assert os.getsid(pid) == pid
    secret = Path(told[0]["arguments"]["--user-data"])  # type: ignore[index]
    assert secret.stat().st_mode & 0o077 == 0
    for node in (first, second):
        await cloud.destroy(node.id)


async def test_workers_run_in_the_places_that_there_are(make_cloud: MakeCloud, tmp_path: Path) -> None:
    places = [Place(("env", f"SITE={number}"), f"127.0.0.{number}") for number in (2, 3)]
    cloud = make_cloud(places=places)
    nodes = [await cloud.create(name, TAGS, user_data(name)) for name in ("one", "two")]
    for node, place in zip(nodes, places, strict=True):
        facts = host_facts(tmp_path, node.id)
        told = json.loads(Path(facts["arguments"]["--user-data"]).read_text())  # type: ignore[index]
        assert told["listen_host"] == place.address
        assert place.command[1] in Path(f"/proc/{facts['pid']}/environ").read_text().split("\0")
        assert os.getsid(int(str(facts["pid"]))) == facts["pid"]
    for node in nodes:
        await cloud.destroy(node.id)


async def test_a_freed_place_and_its_cpus_are_dealt_again(make_cloud: MakeCloud, tmp_path: Path) -> None:
    cloud = make_cloud(cpu_sets=["1", "2"])
    first = await cloud.create("one", TAGS, user_data("one"))
    second = await cloud.create("two", TAGS, user_data("two"))
    await cloud.destroy(first.id)
    third = await cloud.create("three", TAGS, user_data("three"))
    assert host_facts(tmp_path, third.id)["arguments"]["--cpus"] == "1"  # type: ignore[index]
    for node in (second, third):
        await cloud.destroy(node.id)


async def test_a_worker_that_ends_at_once_is_reported_with_its_last_words(make_cloud: MakeCloud) -> None:
    with pytest.raises(BootError, match="no Java here"):
        await make_cloud().create("one", TAGS, user_data("one", fail="yes"))


async def test_a_program_that_is_not_there_is_no_capacity(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(worker_command=("/nowhere/python",))
    with pytest.raises(CapacityError, match="cannot be started"):
        await cloud.create("one", TAGS, user_data("one"))
    assert await cloud.list({}) == []


async def test_a_stubborn_worker_and_its_children_are_killed(make_cloud: MakeCloud, tmp_path: Path) -> None:
    cloud = make_cloud()
    node = await cloud.create("one", TAGS, user_data("one", stubborn="yes", child="yes"))
    pid = int(str(host_facts(tmp_path, node.id)["pid"]))
    family = [psutil.Process(pid), *psutil.Process(pid).children()]
    assert len(family) == 2
    await cloud.destroy(node.id)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)


async def test_a_child_is_killed_although_its_parent_is_dead(make_cloud: MakeCloud, tmp_path: Path) -> None:
    cloud = make_cloud()
    node = await cloud.create("one", TAGS, user_data("one", child="yes"))
    worker = psutil.Process(int(str(host_facts(tmp_path, node.id)["pid"])))
    (child,) = worker.children()
    worker.kill()
    while (listed := await cloud.list(TAGS))[0].state != "gone":
        assert child.is_running()
    assert listed[0].id == node.id
    await cloud.destroy(node.id)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


async def test_another_process_with_the_same_number_is_left_alone(make_cloud: MakeCloud, tmp_path: Path) -> None:
    cloud = make_cloud()
    node = await cloud.create("one", TAGS, user_data("one"))
    # Only now: two processes that begin within the same tick of the kernel's clock have the same mark.
    bystander = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    file = tmp_path / "cloud" / f"{node.id}.json"
    record = json.loads(file.read_text())
    real = record["pid"], record["mark"]
    file.write_text(json.dumps(record | {"pid": bystander.pid}))
    assert [listed.state for listed in await cloud.list(TAGS)] == ["gone"]
    await cloud.destroy(node.id)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    processes.kill_session(*real)
    assert processes.wait_empty(*real, 5.0)


async def test_a_worker_whose_number_was_never_written_down_is_found(
    make_cloud: MakeCloud, tmp_path: Path, workers: Workers
) -> None:
    cloud = make_cloud()
    node = await cloud.create("one", TAGS, user_data("one"))
    file = tmp_path / "cloud" / f"{node.id}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pid": 0, "mark": "", "stage": "starting"}))
    assert [listed.state for listed in await make_cloud().list(TAGS)] == ["starting"]
    await make_cloud().destroy(node.id)
    assert workers() == []


async def test_workers_outlive_a_gateway_that_is_killed(
    make_cloud: MakeCloud, tmp_path: Path, workers: Workers
) -> None:
    program = """
import asyncio, sys
from pathlib import Path
from infra.clock import SystemClock
from infra.clouds.process import ProcessCloud
async def main():
    cloud = ProcessCloud(Path(sys.argv[1]), SystemClock(), max_vms=2, worker_command=sys.argv[3:])
    print((await cloud.create("one", {"gateway": "g1"}, sys.argv[2])).id, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    fake = Path(__file__).with_name("fake_worker.py")
    arguments = [str(tmp_path / "cloud"), user_data("one"), sys.executable, str(fake)]
    gateway = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)
    assert gateway.stdout is not None
    node_id = gateway.stdout.readline().strip()
    gateway.send_signal(signal.SIGKILL)
    gateway.wait()
    gateway.stdout.close()
    cloud = make_cloud()
    (found,) = await cloud.list({"gateway": "g1"})
    assert (found.id, found.state) == (node_id, "running")
    await cloud.destroy(node_id)
    assert workers() == []


def test_a_start_mark_is_stable_and_ends_with_the_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    mark = processes.start_mark(process.pid)
    assert mark is not None
    assert processes.start_mark(process.pid) == mark != processes.start_mark(os.getpid())
    process.kill()
    process.wait()
    assert processes.start_mark(process.pid) is None


def test_records_survive_and_are_read_whole(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    (tmp_path / "registry" / "stranger.txt").write_text("not ours")
    assert registry.all() == []
    assert registry.get("none") is None
    assert registry.log_tail("none") == ""


@pytest.mark.parametrize(
    ("available", "private", "sets"),
    [
        ([0], [], ["0"]),
        ([0, 1], [], ["1"]),
        ([0, 1, 2, 3], [], ["1", "2", "3"]),
        ([0, 1, 2, 3], [0, 1], ["2", "3"]),
        ([0, 1], [0, 1], ["0", "1"]),
        ([4, 6], [], ["6"]),
    ],
)
def test_the_private_side_keeps_its_cpus_where_there_are_enough(
    available: list[int], private: list[int], sets: list[str]
) -> None:
    assert cloud_cpu_sets(available, private) == sets


@given(numbers=st.sets(st.integers(0, 200), min_size=1, max_size=20))
def test_cpu_sets_are_read_as_written(numbers: set[int]) -> None:
    assert cpu_numbers(",".join(map(str, sorted(numbers)))) == sorted(numbers)


def test_a_range_of_cpus_is_read() -> None:
    assert cpu_numbers("0-2,5") == [0, 1, 2, 5]
