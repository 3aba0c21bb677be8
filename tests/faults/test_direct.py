"""A query is handed over between Spark and the gateway: whatever is killed, no result is lost or repeated."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.failpoints import DIRECT
from tests.connectors.kafka_broker import Broker
from tests.e2e.direct_site import Site, expected
from tests.e2e.harness import until
from tests.faults.figures import Figures, Measure, Scale, only_full

KILLS_LEAST = 50
PART = 60
ENDS = ("direct.stopped", "direct.taken")
"""The places that are reached once Spark does not carry the query any more."""
FAULT = "a query is handed over between Spark and the gateway: kill -9 of gateway or engine host at home at each step"


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
    rounds = scale.times(1, KILLS_LEAST)
    return [(place, victim) for place in sorted(DIRECT) for victim in ("gateway", "home")] * rounds


def strike(site: Site, place: str, victim: str, first: int) -> None:
    """Kill something when a gateway reaches a place; meanwhile events come, from this number on."""
    site.start(f"{place}={'kill' if victim == 'gateway' else 'stop'}@1")
    process = psutil.Process(site.gateway.process.pid)  # type: ignore[union-attr]
    site.produce(range(first, first + PART // 2))
    until(lambda: site.carried() or not runs(process), "Spark carries some")
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
    kills = Measure("kills", len(strikes), scale.times(3, KILLS_LEAST), at_least=True)
    figures.add(FAULT, kills, times=len(strikes), outcome="0 lost, 0 twice by the headers, in order within partitions")
