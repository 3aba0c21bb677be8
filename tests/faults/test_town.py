"""The gateway killed at any moment and at every named place, with a VM across a WAN that has much of the events.

Other faults at the same moment: the VM and home's engine host die too, or the WAN is cut. Neighbours restart. Nothing
is lost or doubled, all is in order, and no VM is left.

The short form injects all faults into one town, one after another; the full form gives each fault a town of its own.
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

from infra.failpoints import DIRECT, HELD, MOVING, MOVING_PARTS, NAMES
from tests.connectors.kafka_broker import Broker
from tests.connectors.s3_server import Fault
from tests.e2e.harness import until
from tests.faults.figures import FULL, Figures, Measure, Scale
from tests.faults.senders import PAUSE_S
from tests.faults.town import ONE_VM, SLOW_S, Town
from tests.faults.two_sites import TwoSites, kill_trees

READY_GOAL_S = 3.0
# Where Spark has to start.
STARTED_GOAL_S = 30.0
RESENT_GOAL_MS = 2000
# VMs must have answered so much of all events. Tests wait for more: what comes last may be answered at home.
CLOUD_GOAL, CLOUD_WANTED = 0.3, 0.35
# A VM is killed once it has so many runs: an answer may be on its way.
RUNS_ON_VM = 3
# In the full form, so many runs must really be re-sent.
RESENT_RUNS = 100
# So long a place may take to be reached, while events flow.
REACHED_S = 60.0
S3_FAULTS: tuple[Fault, ...] = ("500", "503", "slow down", "late", "answer lost", "refused")
REPLAY = "deadletters.replay."
# A journal deletes one of its files every ten seconds or so.
SELDOM = (REPLAY, "journal.unlink.")
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
def town(tmp_path: Path, home_broker: Broker, sites: TwoSites) -> Iterator[Town]:
    """A town at home whose gateway rents one VM, across the WAN."""
    place = Town(tmp_path, home_broker, {**ONE_VM, **sites.cloud})
    yield place
    place.close()


@dataclass(frozen=True)
class Ground:
    """Where a fault is injected, and how often."""

    town: Town
    sites: TwoSites
    chance: random.Random
    scale: Scale
    figures: Figures

    def each(self, short: int, full: int) -> Iterator[None]:
        """Return once for each time that the fault shall be injected, while a VM has enough of the events."""
        for _ in range(self.scale.times(short, full)):
            self.town.until_the_cloud_holds(CLOUD_WANTED)
            yield
            self.figures.sample()

    def some_time(self, most_s: float) -> None:
        """Let any time pass: the fault shall hit anything that is under way."""
        time.sleep(self.chance.uniform(0, most_s))


@dataclass(frozen=True)
class Seen:
    """How often a fault was injected, and what was measured."""

    times: int
    measures: tuple[Measure, ...] = ()


def ready_again(times_s: list[float], goal_s: float) -> Seen:
    """Return how long it took until the gateway was ready."""
    measures = (
        Measure("ready again (median)", median(times_s), goal_s, "s"),
        Measure("ready again (most)", max(times_s), goal_s, "s"),
    )
    return Seen(len(times_s), measures)


def gateway_killed(ground: Ground) -> Seen:
    """Kill the gateway at random moments."""
    times_s = []
    for _ in ground.each(1, 200):
        ground.some_time(1.5)
        ground.town.gateway.kill()
        ground.town.pace(SLOW_S)
        times_s.append(ground.town.gateway.start_ready())
    return ready_again(times_s, READY_GOAL_S)


def killed_while_cut(ground: Ground) -> Seen:
    """Cut the WAN, and kill the gateway meanwhile; it starts before the cut ends."""
    times_s = []
    for _ in ground.each(1, 10):
        ground.sites.cut()
        ground.some_time(4)  # it may have noticed the cut, or not
        ground.town.gateway.kill()
        times_s.append(ground.town.gateway.start_ready())
        ground.some_time(4)
        ground.sites.heal()
    return ready_again(times_s, READY_GOAL_S)


def home_lost_while_cut(ground: Ground) -> Seen:
    """Kill the engine host at home while the WAN is cut: no site is left for a while."""
    times_s, gateway = [], ground.town.gateway
    for _ in ground.each(1, 10):
        ground.sites.cut()
        ground.some_time(4)
        kill_trees(gateway.host_pids("home"))
        lost_s = time.monotonic()
        ground.some_time(4)
        gateway.look()
        before = gateway.answered_at_home
        ground.sites.heal()
        until(
            lambda before=before: gateway.look() >= 0 and gateway.answered_at_home > before,  # type: ignore[misc]
            "home answers again",
        )
        times_s.append(time.monotonic() - lost_s)
    return ready_again(times_s, STARTED_GOAL_S)


def worker_killed(ground: Ground) -> Seen:
    """Kill the VM while it works."""
    gateway = ground.town.gateway
    resent = []
    for _ in ground.each(1, 30):
        until(lambda: gateway.look() >= RUNS_ON_VM, f"a VM has {RUNS_ON_VM} runs")
        lost = len(gateway.elsewhere())
        kill_trees(gateway.host_pids("vms"))
        until(lambda lost=lost: len(gateway.elsewhere()) > lost, "the lane is lost")  # type: ignore[misc]
        until(lambda: not gateway.has_vm("idle", "sending"), "the VM is given up")
        resent.append(gateway.elsewhere()[lost:])
    runs = sum(runs for each in resent for runs, _ in each)
    most_ms = max(took_ms for each in resent for _, took_ms in each)
    wanted = RESENT_RUNS if ground.scale.full else 1
    measures = (
        Measure("runs re-sent", runs, wanted, at_least=True),
        Measure("after detection (most)", most_ms, RESENT_GOAL_MS, "ms"),
    )
    return Seen(len(resent), measures)


def all_killed_together(ground: Ground) -> Seen:
    """Kill the gateway, the VM, and the engine host at home at one moment."""
    times_s, gateway = [], ground.town.gateway
    for _ in ground.each(1, 10):
        ground.some_time(1.5)
        pids = gateway.host_pids("home") + gateway.host_pids("vms")
        assert len(pids) == 2
        gateway.kill()
        kill_trees(pids)
        times_s.append(gateway.start_ready())
    return ready_again(times_s, STARTED_GOAL_S)


def neighbours_restart(ground: Ground) -> Seen:
    """Restart Kafka and mosquitto, and let the object store fail: the gateway continues by itself."""
    town = ground.town
    faults: list[Callable[[], object]] = [
        town.broker.restart,
        town.mosquitto_restarts,
        *(partial(town.s3_fails, fault, 3.0) for fault in S3_FAULTS),
    ]
    rounds = 0
    for _ in ground.each(1, 5):
        rounds += 1
        for fault in ground.chance.sample(faults, len(faults)):
            fault()
            ground.some_time(1)
    return Seen(len(faults) * rounds)


def killed_at_every_place(ground: Ground) -> Seen:
    """Kill the gateway at every named place."""
    gateway = ground.town.gateway
    ground.town.until_the_cloud_holds(CLOUD_WANTED)
    gateway.kill()
    times_s = []
    # Those at the end come last: a gateway that ends in order terminates the VM.
    names = sorted(NAMES - MOVING - MOVING_PARTS - HELD - DIRECT, key=lambda name: (name in AT_END, name))
    places = [name for name in names for _ in range(ground.scale.times(1, 2))]
    # In the short form the gateways are killed while they recover, and link up the VM; not the last before the end.
    between, last = ground.scale.times(len(places), 1), sum(name not in AT_END for name in places) - 1
    for number, name in enumerate(places):
        first = name in AT_END or name.startswith(SELDOM)
        recovered = (last - number) % between == 0
        if not ground.scale.full:
            ground.town.pace(PAUSE_S if recovered or name.startswith(SELDOM) else SLOW_S)
        gateway.start(f"{name}=kill@{1 if first else ground.chance.randint(1, 4)}", armed=not recovered)
        if recovered:
            times_s.append(gateway.wait_ready())
            ground.town.until_the_cloud_holds(CLOUD_WANTED)
            gateway.arm()
        if name in AT_END:
            gateway.wait_ready()
            gateway.stop()
        if name.startswith(REPLAY):
            gateway.ask_for_replay("posted", REACHED_S)
        assert gateway.wait_killed(REACHED_S), f"{name} was not reached:\n{gateway.tail()}"
        ground.figures.sample()
    return Seen(len(places), ready_again(times_s, READY_GOAL_S).measures)


# The last one ends the VM.
FIRE: dict[str, Callable[[Ground], Seen]] = {
    "gateway: kill -9 at random moments": gateway_killed,
    "gateway: kill -9 while the WAN is cut": killed_while_cut,
    "engine host at home: kill -9 while the WAN is cut": home_lost_while_cut,
    "worker: kill -9": worker_killed,
    "gateway, VM and engine host at home: kill -9 together": all_killed_together,
    "Kafka restart, mosquitto restart, S3 500/503/slow/response lost": neighbours_restart,
    "gateway: kill -9 at every named place": killed_at_every_place,
}
CUTS = {name for name, happens in FIRE.items() if happens in (killed_while_cut, home_lost_while_cut)}


@pytest.mark.timeout(10800)
@pytest.mark.parametrize(
    "names", [[name] for name in FIRE] if FULL else [list(FIRE)], ids=list(FIRE) if FULL else ["all"]
)
def test_two_sites_under_fire(town: Town, sites: TwoSites, scale: Scale, figures: Figures, names: list[str]) -> None:
    if sites.why_no_wan and CUTS.issuperset(names):
        pytest.skip(f"not run: {sites.why_no_wan}")
    print(f"seed {scale.seed}")
    ground = Ground(town, sites, random.Random(scale.seed), scale, figures)
    town.gateway.start_ready()
    town.send()
    seen: dict[str, Seen] = {}
    for name in names:
        if name in CUTS and sites.why_no_wan:
            continue  # said at the end: the test does not count as passed
        began_s = time.monotonic()
        seen[name] = FIRE[name](ground)
        print(f"{name}: took {time.monotonic() - began_s:.0f} s")
    town.settle()
    by_vms = town.gateway.answered_by_vms
    shared = (
        Measure("VMs' part of the events", by_vms.total() / town.taken, CLOUD_GOAL, at_least=True),
        Measure("queries with such a part", len(by_vms), len(town.senders), at_least=True),
    )
    exact = f"{town.taken:,} events: 0 lost, 0 twice, 0 out of order, 0 VMs left"
    for name, each in seen.items():
        figures.add(name, *each.measures, *shared, times=each.times, outcome=exact)
    if sites.why_no_wan:
        pytest.skip(f"not run: what cuts the WAN; {sites.why_no_wan}")
