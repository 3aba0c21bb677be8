"""When a query with state moves, and what it says where it cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from shutil import rmtree

import pytest

from gateway.query.moving.ahead import FRESH_S
from gateway.query.moving.mover import COPY_LATE_S, COPY_S, Mover
from policies.signals import HOME
from tests.moving.copying_vm import CopyingVm, offsets, write
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until


class Moved:
    """A mover at home, with one VM, and what it reported."""

    def __init__(self, folder: Path, pause_most_s: float = 10.0) -> None:
        self.clock = ManualClock()
        self.base = folder / "home" / "checkpoints"
        self.vm = CopyingVm(folder / "vm")
        self.failed: list[tuple[str, str]] = []
        self.copied: list[int] = []
        self.mover = Mover("q", self.clock, pause_most_s, lambda: self.base, self._note_failed, self._note_copied)
        self.mover.vms["vm-1"] = self.vm.connection

    def _note_failed(self, vm: str, reason: str) -> None:
        self.failed.append((vm, reason))

    async def _note_copied(self, seq: int) -> None:
        self.copied.append(seq)

    async def look(self) -> None:
        """Let the mover look once more at where it is to be."""
        await until(lambda: self.clock.sleeper_count > 0)
        self.clock.advance(0.2)
        await until(lambda: self.clock.sleeper_count > 0)


@pytest.fixture
async def moved(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Moved]:
    moved = Moved(tmp_path, getattr(request, "param", 10.0))
    yield moved
    await moved.mover.rest()
    await moved.vm.close()


def test_it_goes_where_most_of_its_share_is_and_stays_there(moved: Moved) -> None:
    other = moved.mover.vms["vm-2"] = moved.vm.connection
    assert other.alive
    moved.mover.follow({HOME: 0.0, "vm-1": 0.4, "vm-2": 0.6})
    assert moved.mover.target == "vm-2"
    moved.mover.place = "vm-1"
    assert moved.mover.target == "vm-1"
    moved.mover.drain("vm-1")
    assert moved.mover.target == "vm-2"
    moved.mover.lose("vm-2")
    assert moved.mover.target == HOME


async def test_it_is_due_once_its_checkpoint_is_on_the_vm(moved: Moved) -> None:
    write(moved.base / "1", {"state/0/0/1.changelog": b"state"})
    moved.mover.begin()
    await moved.look()
    assert not moved.mover.due
    moved.mover.follow({HOME: 0.0, "vm-1": 1.0})
    await moved.look()
    await until(lambda: moved.mover.due)
    await moved.mover.send_rest()
    (start,) = (moved.vm.link.workdir / moved.mover.checkpoint_dir).iterdir()
    assert (start / "state/0/0/1.changelog").read_bytes() == b"state"


# A first move is expected to take 2 s.
@pytest.mark.parametrize("moved", [1.5], indirect=True)
async def test_it_does_not_move_where_the_pause_would_be_too_long(moved: Moved) -> None:
    write(moved.base / "1", {})
    moved.mover.follow({HOME: 0.0, "vm-1": 1.0})
    moved.mover.begin()
    await moved.look()
    await until(lambda: len(moved.vm.link.sent) > 0)
    await moved.look()
    assert moved.mover.pause_expected_s == pytest.approx(2.0)
    assert not moved.mover.due


async def test_without_a_checkpoint_it_says_why_it_does_not_move_and_does_not_try_again(moved: Moved) -> None:
    moved.mover.follow({HOME: 0.0, "vm-1": 1.0})
    moved.mover.begin()
    await until(lambda: bool(moved.failed))
    assert moved.failed == [("vm-1", "its state cannot be moved there: there is no checkpoint at home yet")]
    assert moved.mover.target == HOME
    await moved.look()
    await moved.look()
    assert len(moved.failed) == 1


async def test_a_lost_vm_is_left_at_once(moved: Moved) -> None:
    moved.mover.place = "vm-1"
    moved.mover.follow({HOME: 0.0, "vm-1": 1.0})
    assert not moved.mover.due
    moved.vm.link.lose("kill -9")
    await until(lambda: moved.mover.due)
    assert not await moved.mover.fetch_rest()


async def test_while_it_is_away_its_checkpoint_comes_home_again_and_again(moved: Moved) -> None:
    write(moved.base / "1", {"state/0/0/1.changelog": b"state"})
    moved.mover.follow({HOME: 0.0, "vm-1": 1.0})
    moved.mover.begin()
    await moved.look()
    await until(lambda: moved.mover.due)
    await moved.mover.send_rest()
    moved.mover.place = "vm-1"
    (start,) = (moved.vm.link.workdir / moved.mover.checkpoint_dir).iterdir()
    write(start, {"offsets/1": offsets(40), "commits/1": b"{}", "state/0/0/2.changelog": b"more"})
    for _ in range(int(COPY_S / 0.2) + 2):
        await moved.look()
    await until(lambda: moved.copied == [40])
    (copy,) = (path for path in moved.base.iterdir() if path.name.isdigit())
    assert (copy / "state/0/0/2.changelog").read_bytes() == b"more"


async def test_it_returns_from_a_vm_that_sends_no_checkpoints(moved: Moved) -> None:
    write(moved.base / "1", {})
    moved.mover.follow({HOME: 0.0, "vm-1": 1.0})
    moved.mover.begin()
    await moved.look()
    await until(lambda: moved.mover.due)
    await moved.mover.send_rest()
    moved.mover.place = "vm-1"
    rmtree(moved.vm.link.workdir)
    await moved.look()
    assert moved.mover.target == "vm-1"
    for _ in range(int(COPY_LATE_S / COPY_S) + 2):
        await until(lambda: moved.clock.sleeper_count > 0)
        moved.clock.advance(COPY_S)
    await until(lambda: moved.mover.due)
    assert moved.mover.target == HOME
    assert moved.copied == []


async def test_a_copy_on_one_vm_is_no_copy_on_another(moved: Moved) -> None:
    write(moved.base / "1", {})
    moved.mover.vms["vm-2"] = moved.vm.connection
    moved.mover.follow({HOME: 0.0, "vm-1": 1.0})
    moved.mover.begin()
    await moved.look()
    await until(lambda: moved.mover.due)
    moved.mover.drain("vm-1")
    moved.mover.follow({HOME: 0.0, "vm-2": 1.0})
    assert moved.mover.target == "vm-2"
    assert not moved.mover.due
    await moved.look()
    await until(lambda: moved.mover.due)


async def test_a_copy_that_failed_elsewhere_leaves_none_to_add_the_rest_to(moved: Moved, tmp_path: Path) -> None:
    write(moved.base / "1", {"state/0/0/1.changelog": b"state"})
    other = CopyingVm(tmp_path / "other")
    moved.mover.vms["vm-2"] = other.connection
    moved.mover.follow({HOME: 0.0, "vm-1": 1.0})
    moved.mover.begin()
    await moved.look()
    await until(lambda: moved.mover.due)
    other.link.before["OfferState"] = lambda: other.link.lose("kill -9")
    moved.mover.follow({HOME: 0.0, "vm-2": 1.0})
    await moved.look()
    await until(lambda: bool(moved.failed))
    moved.mover.follow({HOME: 0.0, "vm-1": 1.0})
    assert not moved.mover.due
    await moved.look()
    await until(lambda: moved.mover.due)
    await moved.mover.send_rest()
    assert (moved.vm.link.workdir / moved.mover.checkpoint_dir).is_dir()
    await other.close()


async def test_an_old_copy_is_made_again_before_the_query_moves(moved: Moved) -> None:
    write(moved.base / "1", {})
    moved.mover.follow({HOME: 0.0, "vm-1": 1.0})
    moved.mover.begin()
    await moved.look()
    await until(lambda: moved.mover.due)
    first = moved.mover.checkpoint_dir
    await until(lambda: moved.clock.sleeper_count > 0)
    moved.clock.advance(FRESH_S + 1)
    assert not moved.mover.due
    await until(lambda: moved.mover.due)
    assert moved.mover.checkpoint_dir != first
