"""The gateway killed at any moment and at every named place, with a VM across a WAN that has much of the events.

Other faults at the same moment: the VM and home's engine host die too, or the WAN is cut. Neighbours restart. Nothing
is lost or doubled, all is in order, and no VM is left.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from infra.failpoints import NAMES
from tests.connectors.kafka_broker import Broker
from tests.connectors.s3_server import Fault
from tests.e2e.harness import until
from tests.faults.figures import FULL, Figures, Measure, Scale
from tests.faults.town import ONE_VM, Town
from tests.faults.two_sites import TwoSites, kill_trees

READY_GOAL_S = 3.0
# Where Spark has to start.
STARTED_GOAL_S = 30.0
# VMs must have answered so much of all events. Tests wait for more: what comes last may be answered at home.
CLOUD_GOAL, CLOUD_WANTED = 0.3, 0.45
# So long a place may take to be reached, while events flow.
REACHED_S = 60.0
S3_FAULTS: tuple[Fault, ...] = ("500", "503", "slow down", "late", "answer lost", "refused")
REPLAY = "deadletters.replay."
# Places that are reached when a gateway ends in order (or after hours of growth).
AT_END = {"runlog.rewrite.before", "runlog.rewrite.after"}


@pytest.fixture(scope="module")
def home_broker(sites: TwoSites, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker at home: the one of all tests is elsewhere."""
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def town(tmp_path: Path, home_broker: Broker) -> Iterator[Town]:
    """A town without VMs."""
    place = Town(tmp_path, home_broker, {})
    yield place
    place.close()


@pytest.fixture
def two_towns(tmp_path: Path, home_broker: Broker, sites: TwoSites) -> Iterator[Town]:
    """A town at home whose gateway rents one VM, across the WAN."""
    place = Town(tmp_path, home_broker, {**ONE_VM, **sites.cloud})
    yield place
    place.close()


def gateway_killed(town: Town, sites: TwoSites, chance: random.Random) -> float:
    """Kill the gateway at some moment; return after how long it is ready again."""
    time.sleep(chance.uniform(0, 1.5))
    town.gateway.kill()
    return town.gateway.start_ready()


def all_killed_together(town: Town, sites: TwoSites, chance: random.Random) -> float:
    """Kill the gateway, the VM, and the engine host at home at one moment."""
    time.sleep(chance.uniform(0, 1.5))
    pids = town.gateway.host_pids("home") + town.gateway.host_pids("vms")
    assert len(pids) == 2
    town.gateway.kill()
    kill_trees(pids)
    return town.gateway.start_ready()


def killed_while_cut(town: Town, sites: TwoSites, chance: random.Random) -> float:
    """Cut the WAN, and kill the gateway meanwhile; it starts before the cut ends."""
    sites.cut()
    time.sleep(chance.uniform(0, 4))  # it may have noticed the cut, or not
    town.gateway.kill()
    ready_s = town.gateway.start_ready()
    time.sleep(chance.uniform(0, 4))
    sites.heal()
    return ready_s


def home_lost_while_cut(town: Town, sites: TwoSites, chance: random.Random) -> float:
    """Kill the engine host at home while the WAN is cut: no site is left for a while."""
    sites.cut()
    time.sleep(chance.uniform(0, 4))
    kill_trees(town.gateway.host_pids("home"))
    lost_s = time.monotonic()
    time.sleep(chance.uniform(0, 4))
    town.gateway.look()
    before = town.gateway.answered["home"]
    sites.heal()
    until(lambda: town.gateway.look() >= 0 and town.gateway.answered["home"] > before, "home answers again")
    return time.monotonic() - lost_s


@dataclass(frozen=True)
class Fire:
    """What happens, how often in short and in full form, and how soon all must be ready again."""

    happens: Callable[[Town, TwoSites, random.Random], float]
    short: int
    full: int
    goal_s: float
    cuts: bool = False


FIRE = {
    "gateway: kill -9 at random moments": Fire(gateway_killed, 1, 200, READY_GOAL_S),
    "gateway, VM and engine host at home: kill -9 together": Fire(all_killed_together, 1, 25, STARTED_GOAL_S),
    "gateway: kill -9 while the WAN is cut": Fire(killed_while_cut, 1, 25, READY_GOAL_S, cuts=True),
    "engine host at home: kill -9 while the WAN is cut": Fire(home_lost_while_cut, 1, 25, STARTED_GOAL_S, cuts=True),
}


def ready_again(times_s: list[float], goal_s: float) -> list[Measure]:
    """Return how long it took until the gateway was ready."""
    return [
        Measure("ready again (median)", median(times_s), goal_s, "s"),
        Measure("ready again (most)", max(times_s), goal_s, "s"),
    ]


def cloud_part(town: Town) -> Measure:
    """Return which part of all events VMs have answered."""
    return Measure("VMs' part of the events", town.gateway.answered["cloud"] / town.taken, CLOUD_GOAL, at_least=True)


@pytest.mark.timeout(10800)
@pytest.mark.parametrize("names", [[name] for name in FIRE] if FULL else [list(FIRE)], ids=lambda names: names[0])
def test_two_sites_under_fire(
    two_towns: Town, sites: TwoSites, scale: Scale, figures: Figures, names: list[str]
) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    town = two_towns
    town.gateway.start_ready()
    town.send_to_both_sites()
    times_s: dict[str, list[float]] = {}
    for name in names:
        fire = FIRE[name]
        if fire.cuts and sites.why_no_wan:
            continue  # said at the end: the test does not count as passed
        times_s[name] = []
        for _ in range(scale.times(fire.short, fire.full)):
            town.until_the_cloud_holds(CLOUD_WANTED)
            times_s[name].append(fire.happens(town, sites, chance))
    town.until_the_cloud_holds(CLOUD_WANTED)
    town.settle()
    for name, each_s in times_s.items():
        again = ready_again(each_s, FIRE[name].goal_s)
        figures.add(name, *again, cloud_part(town), times=len(each_s), outcome=exact(town))
    if sites.why_no_wan:
        pytest.skip(f"not run: what cuts the WAN; {sites.why_no_wan}")


def exact(town: Town) -> str:
    """Say what ``settle`` has found."""
    return f"{town.taken:,} events: 0 lost, 0 twice, 0 out of order, 0 VMs left"


@pytest.mark.timeout(7200)
def test_the_gateway_killed_at_every_named_place(two_towns: Town, scale: Scale, figures: Figures) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    town = two_towns
    town.gateway.start_ready()
    town.send_to_both_sites()
    town.until_the_cloud_holds(CLOUD_WANTED)
    town.gateway.kill()
    times_s = []
    # Those at the end come last: a gateway that ends in order terminates the VM.
    names = sorted(NAMES, key=lambda name: (name in AT_END, name))
    places = [name for name in names for _ in range(scale.times(1, 5))]
    # In the short form most gateways are killed while they recover, and link up the VM.
    between = scale.times(5, 1)
    for number, name in enumerate(places):
        first = name in AT_END or name.startswith(REPLAY)
        recovered = number % between == 0
        town.gateway.start(f"{name}=kill@{1 if first else chance.randint(1, 4)}", armed=not recovered)
        if recovered:
            times_s.append(town.gateway.wait_ready())
            town.until_the_cloud_holds(CLOUD_WANTED)
            town.gateway.arm()
        if name in AT_END:
            town.gateway.wait_ready()
            town.gateway.stop()
        if name.startswith(REPLAY):
            town.gateway.ask_for_replay("posted", REACHED_S)
        assert town.gateway.wait_killed(REACHED_S), f"{name} was not reached:\n{town.gateway.tail()}"
    town.settle()
    figures.add(
        "gateway: kill -9 at every named place",
        *ready_again(times_s, READY_GOAL_S),
        cloud_part(town),
        times=len(places),
        outcome=exact(town),
    )


@pytest.mark.timeout(3600)
def test_neighbours_that_restart(town: Town, scale: Scale, figures: Figures) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    town.gateway.start_ready()
    town.send()
    rounds = scale.times(1, 10)
    for _ in range(rounds):
        faults: list[Callable[[], object]] = [
            town.broker.restart,
            town.mosquitto_restarts,
            *(partial(town.s3_fails, fault, 3.0) for fault in S3_FAULTS),
        ]
        for fault in chance.sample(faults, len(faults)):
            fault()
            time.sleep(chance.uniform(0, 1))
    town.settle()
    figures.add(
        "Kafka restart, mosquitto restart, S3 500/503/slow/response lost: the gateway continues by itself",
        times=(2 + len(S3_FAULTS)) * rounds,
        outcome=exact(town),
    )
