"""A query moves with its state to a VM across a WAN and back; whatever is killed at any step, no result changes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from infra.failpoints import MOVING
from tests.connectors.ports import free_ports
from tests.e2e.harness import end_hosts, parts_in, until
from tests.faults.figures import Figures, Measure, Scale
from tests.faults.senders import FileSender
from tests.faults.town import EAGER, LAUNCHED_S, ONE_VM, SCHEMA, TownGateway, file_rows
from tests.faults.two_sites import TwoSites, kill_trees

PAUSE_GOAL_S = 5.0
VICTIMS = ("gateway", "vms", "home")
SHORT = (("move.", "gateway"), ("return.", "vms"))


class Journey:
    """A gateway with one query that keeps state, and a file source for it."""

    def __init__(self, folder: Path, sites: TwoSites) -> None:
        shutil.copy(Path(__file__).with_name("summing.py"), folder)
        self.sender = FileSender(folder / "in")
        self._out = folder / "out"
        query = {
            "function": "summing:summed_by_key",
            "source": {"type": "file", "path": str(folder / "in"), "follow": True},
            "schema": SCHEMA,
            "sink": {"type": "file", "path": str(self._out)},
            "qos": {"latency": "1s"},
            "order": {"flush": "240s"},
            "switching": {**{name: value for name, value in EAGER.items() if name != "share"}, "mode": "query"},
        }
        spark = {"master": "local[1]", "conf": {"spark.sql.shuffle.partitions": 2}}
        self.gateway = TownGateway(
            folder,
            {"summed": query},
            free_ports(1)[0],
            cloud={**ONE_VM, **sites.cloud},
            private={"spark": spark},
            gateway={"slot": "1s"},
        )
        self.pauses_s: list[float] = []

    def kept_state(self) -> dict[str, Any]:
        """Return where the query is, and how it moved, from the gateway's status."""
        found = self.gateway.status()["queries"]["summed"]["kept_state"]
        return dict(found or {"place": "home", "moves": 0, "last_pause_s": None, "last_moved_bytes": 0})

    def is_away(self) -> bool:
        """Return whether the query is on a VM."""
        return str(self.kept_state()["place"]) != "home"

    def go(self) -> None:
        """Let events flow until the query is on a VM."""
        self.sender.go_on()
        until(self.is_away, "the query is on a VM", LAUNCHED_S)
        self._note()

    def come_back(self) -> None:
        """Send nothing until the query is at home."""
        self.sender.rest()
        until(lambda: not self.is_away(), "the query is at home")
        self._note()

    def _note(self) -> None:
        pause_s = self.kept_state()["last_pause_s"]
        if pause_s is not None:
            self.pauses_s.append(float(pause_s))

    @property
    def results(self) -> int:
        """How many results there are: each event has one, so the last part's name tells."""
        parts = parts_in(self._out)
        return parts[-1].last_seq + 1 if parts else 0

    def wrong(self) -> str:
        """Return what is wrong with the results; empty if nothing is."""
        totals = dict.fromkeys(range(7), 0)
        expected = []
        for n in sorted(self.sender.taken):
            totals[n % 7] += n
            expected.append((n, totals[n % 7]))
        found = sorted((int(row["n"]), int(row["total"])) for row in file_rows(self._out))
        if found == expected:
            return ""
        strange = sorted(set(found) - set(expected))
        missing = sorted(set(expected) - set(found))
        return f"{len(found)} results of {len(expected)}; not expected: {strange[:5]}; missing: {missing[:5]}"

    def close(self) -> None:
        """End all of it."""
        self.sender.give_up()
        if self.gateway.runs:
            self.gateway.kill()
        end_hosts(self.gateway.state_dir)


@pytest.fixture
def journey(tmp_path: Path, sites: TwoSites) -> Iterator[Journey]:
    journey = Journey(tmp_path, sites)
    yield journey
    journey.close()


def strike(journey: Journey, place: str, victim: str, moves_first: int = 0) -> None:
    """Kill something when the gateway reaches a place of a move, after some moves without a kill."""
    gateway, sender = journey.gateway, journey.sender
    if gateway.runs:
        gateway.kill()
    gateway.start(f"{place}={'kill' if victim == 'gateway' else 'stop'}@1", armed=False)
    gateway.wait_ready()
    for _ in range(moves_first):
        journey.go()
        journey.come_back()
    if place.startswith("return."):
        journey.go()
    gateway.arm()
    if place.startswith("return."):
        sender.rest()
    else:
        sender.go_on()
    if victim == "gateway":
        assert gateway.wait_killed(LAUNCHED_S), f"{place} was not reached:\n{gateway.tail()}"
        return
    until(gateway.is_frozen, f"{place} is reached", LAUNCHED_S)
    kill_trees(gateway.host_pids(victim))
    gateway.resume()
    sender.go_on()
    sent = len(sender.taken)
    until(lambda: journey.results > sent, "what was sent since has results", LAUNCHED_S)


@pytest.mark.timeout(7200)
def test_a_query_moves_with_its_state_whatever_is_killed(journey: Journey, scale: Scale, figures: Figures) -> None:
    print(f"seed {scale.seed}")
    chance = random.Random(scale.seed)
    gateway, sender = journey.gateway, journey.sender
    every = [(place, victim) for place in sorted(MOVING) for victim in VICTIMS] * 2
    # The short form kills the gateway while the query leaves, and its VM while it returns.
    short = [(chance.choice(sorted(name for name in MOVING if name.startswith(way))), victim) for way, victim in SHORT]
    sender.start()
    sender.rest()
    strikes = every[: scale.most] if scale.full else short
    for number, (place, victim) in enumerate(strikes):
        print(f"{number}: {victim} is killed at {place}", flush=True)
        strike(journey, place, victim, 0 if number else scale.times(1, 5))
    if not gateway.runs:
        gateway.start_ready()
    sender.stop()
    until(lambda: journey.results >= len(sender.taken), "all results are there", LAUNCHED_S)
    gateway.drain()
    assert not journey.wrong(), journey.wrong()
    assert not gateway.orphans()
    figures.add(
        "a query moves with its state: kill -9 of gateway, VM or engine host at home at each step",
        Measure("events held (median)", median(journey.pauses_s), PAUSE_GOAL_S, "s"),
        Measure("events held (most)", max(journey.pauses_s), PAUSE_GOAL_S, "s"),
        times=len(strikes),
        outcome=f"{len(sender.taken):,} events: 0 lost, 0 twice, 0 wrong sums, 0 VMs left",
    )
