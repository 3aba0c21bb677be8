"""A query moves with its state to a VM across a WAN and back; whatever is killed at any step, no result changes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from infra.failpoints import MOVING, MOVING_PARTS
from tests.connectors.ports import free_ports
from tests.e2e.harness import end_hosts, parts_in, until
from tests.faults.figures import Figures, Measure, Scale
from tests.faults.senders import FileSender
from tests.faults.town import EAGER, LAUNCHED_S, ONE_VM, SCHEMA, TownGateway, file_rows
from tests.faults.two_sites import TwoSites, kill_trees

PAUSE_GOAL_S = 5.0
KILLS_LEAST = 50
VICTIMS = ("gateway", "vms", "home")
SHORT = (("move.", "gateway"), ("return.", "vms"))
# The gateway is killed while a part leaves, and the engine host at home, where others stay, while one returns.
SHORT_IN_PARTS = (("part.leaves.", "gateway"), ("part.returns.", "home"))


class Journey:
    """A gateway with one query that keeps state, and a file source for it.

    Args:
        folder: for all of it.
        sites: home, and the place of a VM.
        parts: into how many parts its seven keys are divided; 0: it moves as a whole.
    """

    def __init__(self, folder: Path, sites: TwoSites, parts: int = 0) -> None:
        shutil.copy(Path(__file__).with_name("summing.py"), folder)
        self.sender = FileSender(folder / "in", keys=7)
        self._out = folder / "out"
        whole = {name: value for name, value in EAGER.items() if name != "share"}
        query = {
            "function": "summing:summed_by_column" if parts else "summing:summed_by_key",
            "source": {"type": "file", "path": str(folder / "in"), "follow": True},
            "schema": f"{SCHEMA}, k BIGINT",
            "sink": {"type": "file", "path": str(self._out)},
            "qos": {"latency": "1s"},
            "order": {"flush": "240s"},
            "switching": {**EAGER, "mode": "keys", "key": "k", "parts": parts} if parts else {**whole, "mode": "query"},
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

    def kept_state(self) -> list[dict[str, Any]]:
        """Return where the query is, or each of its parts, and how it moved, from the gateway's status."""
        found = self.gateway.status()["queries"]["summed"]["kept_state"] or {}
        return list(found["parts"].values()) if "parts" in found else [found] if found else []

    def is_away(self) -> bool:
        """Return whether the query, or a part of it, is on a VM."""
        return any(part["place"] != "home" for part in self.kept_state())

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
        self.pauses_s += [float(part["last_pause_s"]) for part in self.kept_state() if part["last_pause_s"] is not None]

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


@pytest.fixture
def in_parts(tmp_path: Path, sites: TwoSites) -> Iterator[Journey]:
    journey = Journey(tmp_path, sites, parts=3)
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
    returns = place.startswith(("return.", "part.returns."))
    if returns:
        journey.go()
    gateway.arm()
    if returns:
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


def strikes_of(scale: Scale, places: frozenset[str], short: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Return where what is killed: each victim at each place of a move, at least 50 times; or a short form of that."""
    chance = random.Random(scale.seed)
    if scale.full:
        rounds = -(-KILLS_LEAST // (len(places) * len(VICTIMS)))
        return ([(place, victim) for place in sorted(places) for victim in VICTIMS] * rounds)[: scale.most]
    return [(chance.choice(sorted(name for name in places if name.startswith(way))), victim) for way, victim in short]


@pytest.mark.timeout(7200)
def test_a_query_moves_with_its_state_whatever_is_killed(journey: Journey, scale: Scale, figures: Figures) -> None:
    # The short form kills the gateway while the query leaves, and its VM while it returns.
    struck_while_moving(
        journey,
        scale,
        strikes_of(scale, MOVING, SHORT),
        figures,
        "a query moves with its state: kill -9 of gateway, VM or engine host at home at each step",
    )


@pytest.mark.timeout(7200)
def test_parts_of_the_keys_move_whatever_is_killed(in_parts: Journey, scale: Scale, figures: Figures) -> None:
    struck_while_moving(
        in_parts,
        scale,
        strikes_of(scale, MOVING_PARTS, SHORT_IN_PARTS),
        figures,
        "parts of a query's keys move with their state: kill -9 of gateway, VM or engine host at home at each step",
    )


def struck_while_moving(
    journey: Journey, scale: Scale, strikes: list[tuple[str, str]], figures: Figures, fault: str
) -> None:
    """Strike in turn, look that no result is wrong, and note how long events were held."""
    print(f"seed {scale.seed}")
    gateway, sender = journey.gateway, journey.sender
    sender.start()
    sender.rest()
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
        fault,
        Measure("events held (median)", median(journey.pauses_s), PAUSE_GOAL_S, "s"),
        Measure("events held (most)", max(journey.pauses_s), PAUSE_GOAL_S, "s"),
        times=len(strikes),
        outcome=f"{len(sender.taken):,} events: 0 lost, 0 twice, 0 wrong sums, 0 VMs left",
    )
