"""What becomes of a part that cannot go on in its next place, and of the query."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.query.commitnews import CommitNews
from gateway.query.moving import movingparts
from gateway.query.moving.mover import Mover
from gateway.query.moving.partmover import NextPlaceError
from gateway.query.moving.placed import PlacedQuery
from policies.keys.places import PartPlaces
from policies.signals import HOME
from tests.support.gateway_doubles import FakeHost, ManualClock


class FakeMove:
    """A move that does what the test wants."""

    then: Any = None

    def __init__(self, *_: object, on_switched: Any, **__: object) -> None:
        self._on_switched = on_switched

    async def run(self) -> None:
        if isinstance(FakeMove.then, Exception):
            raise FakeMove.then
        FakeMove.then()
        self._on_switched(0.0)


class TwoParts(PlacedQuery):
    """A query of two parts, which begins at home."""

    name = "q"

    def __init__(self, folder: Path) -> None:
        self._clock, self._started, self._parts = ManualClock(), True, 2
        self.hosts = {name: FakeHost(name) for name in (HOME, "vm-1")}
        self.failed: list[tuple[str, str]] = []
        self.kept: list[tuple[int, int | None]] = []
        self.plan = cast("Any", SimpleNamespace(stateful=True))
        self.movers = tuple(
            Mover(f"q~{part}", self._clock, 10.0, lambda: folder, self.on_failed, self._copied, self._copied_nothing)
            for part in range(2)
        )
        for mover in self.movers:
            mover.vms["vm-1"] = self.hosts["vm-1"].connection
        home = self.hosts[HOME].connection
        self._home, self._ats, self._next_hosts, self._turns = home, (home, home), {}, {}
        self._news = (CommitNews("q~0"), CommitNews("q~1"))
        self._identity = cast("Any", SimpleNamespace(epoch=1))
        self._part_places, self._pause_most_s = PartPlaces(2), 10.0
        definition = SimpleNamespace(query="q~0")
        self._opener = cast("Any", SimpleNamespace(parts=[SimpleNamespace(definition=definition)] * 2))
        part = SimpleNamespace(kept=SimpleNamespace(batch_start_seq=40))
        keep = SimpleNamespace(keep_from=lambda part, seq: self.kept.append((part, seq)), parts=[part] * 2)
        self.pipeline = cast("Any", keep)

    async def go(self, place: str, then: object = lambda: None) -> None:
        """Let part 1 go to a place."""
        FakeMove.then = then
        self.movers[1].follow({HOME: 0.0, place: 1.0} if place != HOME else {HOME: 1.0})
        await self._move_part(1)

    async def start(self, *hosts: Connection) -> None:
        raise AssertionError(f"it is opened on {hosts}")

    async def stop(self) -> None:
        raise AssertionError("it is stopped")

    def on_failed(self, lane: str, reason: str) -> None:
        self.failed.append((lane, reason))

    async def _copied(self, seq: int) -> None:
        raise AssertionError(f"{seq} has come home")

    async def _copied_nothing(self) -> None:
        raise AssertionError("it copies")


@pytest.fixture
async def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TwoParts]:
    monkeypatch.setattr(movingparts, "PartMover", FakeMove)
    query = TwoParts(tmp_path)
    yield query
    for news in query._news:  # noqa: SLF001
        await news.stop()
    for host in query.hosts.values():
        await host.connection.close("done")


async def test_a_part_that_has_moved_is_away_and_its_runs_are_kept(query: TwoParts) -> None:
    await query.go("vm-1")
    assert query.places == (HOME, "vm-1")
    assert query.kept == [(1, 40)]
    assert not query.lane_idle("vm-1")
    await query.go(HOME)
    assert query.places == (HOME, HOME)
    assert query.kept == [(1, 40), (1, None)]
    assert query.lane_idle("vm-1")


async def test_a_vm_that_refuses_a_part_is_not_tried_again_and_nothing_is_stopped(query: TwoParts) -> None:
    await query.go("vm-1", QueryRefusedError("no room"))
    assert query.failed == [("vm-1", "its state cannot be moved there: no room")]
    assert (query.places, query.movers[1].target, query.move_due) == ((HOME, HOME), HOME, False)


async def test_a_vm_that_is_gone_is_no_failure_of_the_query(query: TwoParts) -> None:
    def killed() -> None:
        query.hosts["vm-1"].link.lose("kill -9")

    await query.go("vm-1", NextPlaceError("it is to be elsewhere"))
    query.failed.clear()
    query.movers[1].vms["vm-1"] = query.hosts["vm-1"].connection
    killed()
    await query.hosts["vm-1"].connection.lost()
    await query.go("vm-1")
    assert (query.failed, query.places, query.move_due) == ([], (HOME, HOME), False)


async def test_a_part_that_cannot_follow_at_home_returns_with_the_whole_query(query: TwoParts) -> None:
    await query.go("vm-1")
    assert not query.move_due
    await query.go(HOME, NextPlaceError("it repeated nothing"))
    assert query.places == (HOME, "vm-1")
    assert query.move_due


async def test_a_part_waits_while_home_is_replaced_or_the_query_is_suspected(query: TwoParts) -> None:
    await query.go("vm-1")
    query._home = None  # noqa: SLF001 - as after the loss of the host at home
    await query.go(HOME)
    query._home, query.may_move = query.hosts[HOME].connection, False  # noqa: SLF001
    await query.go(HOME)
    assert (query.places, query.move_due) == ((HOME, "vm-1"), False)
    query.may_move = True
    await query.go(HOME)
    assert query.places == (HOME, HOME)
