"""A query is handed over between Spark and the gateway: whatever is killed, no result is lost or repeated."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.failpoints import DIRECT
from tests.connectors.kafka_broker import Broker
from tests.e2e.direct_site import PARTITIONS, SQL, Site, expected
from tests.e2e.harness import until
from tests.faults.figures import Figures, Measure, Scale, only_full

KILLS_LEAST = 50
PART = 60
ENDS = ("direct.stopped", "direct.taken")
"""The places that are reached once Spark does not carry the query any more."""
WITH_VM = {"noted": (1,), "opened": (1,), "progress": (1,), "stopped": (1, 2), "taken": (1, 2)}
"""The places, and when each is reached for so many times there is a VM, as a rule."""
FAULT = "a query is handed over between Spark and the gateway: kill -9 of gateway or engine host at home at each step"
FAULT_VM = "parts of a query are handed over, and events go to a VM: kill -9 of the VM at the step {place}"
LATE = {"start_vm_above": "600ms", "send_above": "400ms", "keep_vm_above": "200ms", "tolerance": "0s"}
BURST, MOST_BURST, FEW = 1_000, 5_000, 20
WORK = "aggregate(sequence(1, 20000), 0D, (sum, x) -> sum + x * value) IS NOT NULL"
"""A condition that is always true, and takes about a millisecond, so that a burst makes results late on any machine."""
BURST_S = 4.0


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Iterator[Site]:
    found = Site(broker, tmp_path)
    yield found
    found.close()


def strikes_of(scale: Scale) -> list[tuple[str, str]]:
    """Return where what is killed; in the short form the gateway at some places, and home while Spark carries."""
    if not scale.full:
        places = random.Random(scale.seed).sample(sorted(DIRECT), 2)
        return [*((place, "gateway") for place in places), ("direct.progress", "home")]
    each = [(place, victim) for place in sorted(DIRECT) for victim in ("gateway", "home")]
    return each * scale.times(1, KILLS_LEAST // len(DIRECT))


def strike(site: Site, place: str, victim: str, first: int) -> None:
    """Kill something when a gateway reaches a place; meanwhile events come, from this number on."""
    site.start(f"{place}={'kill' if victim == 'gateway' else 'stop'}@1")
    process = psutil.Process(site.gateway.process.pid)  # type: ignore[union-attr]
    site.produce(range(first, first + PART // 2))
    until(lambda: bool(site.carried()) or not runs(process), "Spark carries some")
    site.produce(range(first + PART // 2, first + PART), *([b"no JSON"] if place in ENDS else []))
    if victim == "gateway":
        until(lambda: not runs(process), f"{place} is reached")
        return
    until(lambda: process.status() == psutil.STATUS_STOPPED, f"{place} is reached")
    os.kill(site.gateway.home_pid(), signal.SIGKILL)
    process.resume()
    site.wait_for(len(expected(range(first + PART))))
    site.gateway.kill()


def runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)


@only_full("tests/e2e/test_direct.py kills both once while Spark carries the query")
@pytest.mark.timeout(14_400)
def test_a_query_is_handed_over_whatever_is_killed(site: Site, scale: Scale, figures: Figures) -> None:
    strikes = strikes_of(scale)
    print(f"seed {scale.seed}")
    for number, (place, victim) in enumerate(strikes):
        print(f"{number}: {victim} is killed at {place}", flush=True)
        strike(site, place, victim, number * PART)
    events = range(len(strikes) * PART)
    site.start()
    site.wait_for(len(expected(events)))
    # Where home is killed, its last results may come twice, with the same headers.
    site.assert_exact(events, once=all(victim == "gateway" for _, victim in strikes))
    kills = Measure("kills", len(strikes), scale.times(3, 2 * KILLS_LEAST), at_least=True)
    figures.add(FAULT, kills, times=len(strikes), outcome="0 lost, 0 twice by the headers, in order within partitions")


def strike_vm(site: Site, place: str, times: int, first: int) -> int:
    """Kill the VM when a gateway has reached a place so many times, while events come from a number on.

    Returns:
        The next number.
    """
    switching = {"mode": "data", "share": "50%", **LATE}
    site.start(f"direct.{place}=stop@{times}", switching=switching, sql=f"{SQL} AND {WORK}")
    process, sent, due_s, burst = psutil.Process(site.gateway.process.pid), first, 0.0, BURST  # type: ignore[union-attr]

    def comes(holds: Callable[[], bool], *, gently: bool = False) -> bool:
        nonlocal sent, due_s, burst
        # The gateway launches a VM when it is late itself. Then Spark gets the parts again, and is late with the next
        # burst; gently, it is in time.
        if gently and site.carried():
            count, parts = FEW, 1
        else:
            count, parts = burst, PARTITIONS if running_vms(site) else 0
        if len(site.carried()) >= parts and time.monotonic() > due_s:
            site.produce(range(sent, sent + count))
            sent, due_s = sent + count, time.monotonic() + BURST_S
            if count == burst:  # the next one is larger, so that it makes a fast machine late, too
                burst = min(burst + BURST // 4, MOST_BURST)
        return holds()

    until(lambda: comes(lambda: not runs(process), gently=place == "progress"), f"{place} is reached")
    stopped = process.status() == psutil.STATUS_STOPPED
    assert stopped, "it has not ended by itself"
    if not running_vms(site):
        process.resume()
        until(lambda: comes(lambda: bool(running_vms(site))), "a VM runs")
    os.kill(running_vms(site)[0], signal.SIGKILL)
    process.resume()
    site.wait_for(len(expected(range(sent))))
    site.gateway.kill()
    return sent


def running_vms(site: Site) -> list[int]:
    """Return the process ids of the VMs that run; those of an earlier gateway may have ended meanwhile."""
    return [pid for pid in site.gateway.vm_pids() if psutil.pid_exists(pid) and runs(psutil.Process(pid))]


@only_full("tests/e2e/test_exactly_once.py kills a VM, and tests/e2e/test_direct.py hands queries over")
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("place", WITH_VM)
def test_parts_are_handed_over_though_the_vm_is_killed(place: str, site: Site, scale: Scale, figures: Figures) -> None:
    at, each = WITH_VM[place], KILLS_LEAST // len(WITH_VM)
    strikes = at * scale.times(1, each // len(at))
    end = 0
    for number, times in enumerate(strikes):
        print(f"{number}: the VM is killed at {place}, time {times}", flush=True)
        end = strike_vm(site, place, times, end)
    site.start()
    site.wait_for(len(expected(range(end))))
    site.assert_exact(range(end))
    kills = Measure("kills", len(strikes), scale.times(len(at), each), at_least=True)
    outcome = "0 lost, 0 twice, in order within partitions"
    figures.add(FAULT_VM.format(place=place), kills, times=len(strikes), outcome=outcome)
