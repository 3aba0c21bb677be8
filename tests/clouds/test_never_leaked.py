"""A gateway that dies by SIGKILL around an order leaves no VM: the next gateway finds the VM by its tags."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.fleet.reaper import Reaper
from infra.clock import SystemClock
from tests.clouds.ec2_lab import Ec2Lab
from tests.clouds.rented_gateway import TAGS, TERMS, books_in, rented
from tests.connectors.s3_server import Fault, FaultProxy, Reply, Request, S3Server

PROGRAM = Path(__file__).with_name("rented_gateway.py")
ROOT = Path(__file__).parents[2]
Moment = Callable[[FaultProxy, Request, Callable[[], None]], Fault | Reply]


def orders(request: Request) -> bool:
    return b"Action=RunInstances" in request.body


def nothing(_: Request) -> Fault | Reply:
    return ""


def before_the_order(proxy: FaultProxy, request: Request, kill: Callable[[], None]) -> Fault | Reply:
    if not orders(request):
        return ""
    kill()
    return "refused"


def before_its_answer(proxy: FaultProxy, request: Request, kill: Callable[[], None]) -> Fault | Reply:
    proxy.kill = kill
    return "answer lost and killed" if orders(request) else ""


def while_it_boots(proxy: FaultProxy, request: Request, kill: Callable[[], None]) -> Fault | Reply:
    proxy.ordered = getattr(proxy, "ordered", False) or orders(request)  # type: ignore[attr-defined]
    if not orders(request) and proxy.ordered:  # type: ignore[attr-defined]
        kill()
        return "refused"
    return ""


@pytest.fixture
def killed_at(moto_server: S3Server, tmp_path: Path) -> Iterator[Callable[[Moment], None]]:
    """Run the renting part of a gateway until it dies at a given moment."""
    proxies: list[FaultProxy] = []

    def run(moment: Moment) -> None:
        died: list[subprocess.Popen[bytes]] = []

        def kill() -> None:
            died[0].kill()
            died[0].wait()

        proxy = FaultProxy(moto_server.port, nothing)
        proxies.append(proxy)
        command = [sys.executable, str(PROGRAM), str(tmp_path / "state"), proxy.endpoint]
        (tmp_path / "state").mkdir()
        died.append(subprocess.Popen(command, env={"PYTHONPATH": str(ROOT)}))
        proxy.fault = lambda request: moment(proxy, request, kill)
        assert died[0].wait(120) == -9

    yield run
    for proxy in proxies:
        proxy.stop()


@pytest.mark.parametrize(("moment", "ordered"), [(before_the_order, 0), (before_its_answer, 1), (while_it_boots, 1)])
async def test_after_kill_9_the_next_gateway_ends_what_was_ordered(
    ec2: Ec2Lab,
    moto_server: S3Server,
    tmp_path: Path,
    killed_at: Callable[[Moment], None],
    moment: Moment,
    ordered: int,
) -> None:
    await asyncio.to_thread(killed_at, moment)
    assert len(ec2.instances()) == ordered
    clock = SystemClock()
    books, ledger = books_in(tmp_path / "state", clock)
    assert books.inherited == {"vm-1"}
    assert ledger.spent_usd(clock.wall()) == pytest.approx(TERMS.time_usd(60.0))
    cloud = rented(moto_server.endpoint, clock)
    reaper = Reaper(cloud, TAGS, set, clock)
    restarted_s = time.monotonic()
    reaper.watch()
    await reaper.first_sweep()
    assert ec2.instances() == []
    assert time.monotonic() - restarted_s < 60.0
    await reaper.stop()
    await cloud.close()
