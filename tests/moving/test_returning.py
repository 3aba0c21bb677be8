"""A query that returns while the VM still repeats micro-batches keeps the ends of those that it has not repeated."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

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
        mover.rest = self._rest_of_mover
        self.movers, self._parts, self._part_places = (cast("Any", mover),), 1, PartPlaces(1)
        self.pipeline = cast("Any", SimpleNamespace(keep_from=lambda *_: None))

    async def _rest_of_mover(self) -> None:
        pass

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


@pytest.mark.parametrize("movers", [1, 3])
@pytest.mark.parametrize("parts", [1, 3])
def test_an_old_definition_may_be_divided_otherwise(tmp_path: Path, movers: int, parts: int) -> None:
    query = ReturningQuery(tmp_path)
    kept: list[int] = []
    query.pipeline = cast(
        "Any", SimpleNamespace(keep_from=lambda part, _: kept.append(part), note_batches=lambda _: None)
    )
    followed: list[dict[str, float]] = []
    mover = SimpleNamespace(place=HOME, target=HOME, leaves=False, vms={}, home_seq=7, follow=followed.append)
    query.movers, query._parts = (cast("Any", mover),) * movers, parts  # noqa: SLF001 - the definition that is open
    query._ats = (cast("Any", SimpleNamespace(name=HOME)),) * parts  # noqa: SLF001
    query._part_places = PartPlaces(movers)  # noqa: SLF001
    query._keep_runs()  # noqa: SLF001
    query.set_shares({HOME: 1.0})
    assert kept == []
    assert followed == [{HOME: 1.0}] * (movers if movers == parts else 1)
