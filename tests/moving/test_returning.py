"""A query that returns while the VM still repeats micro-batches keeps the ends of those that it has not repeated."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from gateway.hosts.connection import Connection
from gateway.query.moving.batchends import BatchEnds
from gateway.query.moving.placed import PlacedQuery
from policies.keys.places import PartPlaces
from policies.signals import HOME
from tests.support.gateway_doubles import ManualClock


class ReturningQuery(PlacedQuery):
    """A query on a VM, whose checkpoint there continues at seq 14."""

    def __init__(self, folder: Path) -> None:
        self._clock, self._started = ManualClock(), False
        self._batch_ends = BatchEnds(folder / "away")
        self._batch_ends.append([10, 14, 18])
        self.opened_with: tuple[int, ...] = ()
        mover = SimpleNamespace(place="vm-1", leaves=True, vms={}, fetch_rest=self.fetch_rest, arrived=lambda *_: None)
        self.movers, self._parts, self._part_places = (cast("Any", mover),), 1, PartPlaces(1)
        self.pipeline = cast("Any", SimpleNamespace(keep_from=lambda *_: None))

    async def fetch_rest(self) -> bool:
        await self._copied_home(0, 14)
        return True

    async def start(self, *hosts: Connection) -> None:  # the ends count
        self.opened_with = self._batch_ends.read()
        self.movers[0].place = HOME

    async def stop(self) -> None:
        pass

    def on_failed(self, lane: str, reason: str) -> None:
        raise AssertionError(f"it failed in {lane}: {reason}")


async def test_the_ends_that_the_vm_has_not_repeated_stay(tmp_path: Path) -> None:
    query = ReturningQuery(tmp_path)
    await query.move(cast("Any", SimpleNamespace(name=HOME)))
    assert query.opened_with == (18,)
