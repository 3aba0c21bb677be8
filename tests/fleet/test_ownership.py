"""The lease: pure decisions under any delays, then real contenders for a real folder."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.config.connectors.s3 import BucketFolderConfig
from gateway.config.sites import GatewayConfig
from gateway.fleet.ownership import Lease, LeaseRecord, Ownership, Write, owned_fleet
from infra.clock import SystemClock
from infra.objectstore.base import StoreUnavailableError
from infra.objectstore.folder import FolderStore
from infra.statefiles import StateError
from tests.support.waiting import until

LEASE_S = 10.0
DEADLINE_S = 60.0


@dataclass
class Contender:
    """A lease, its own monotonic clock, and a write whose request or answer is in flight."""

    lease: Lease
    ahead_s: float
    asked: tuple[Write, float] | None = None
    answer: bool | None = None


ACTIONS = [
    "whole",
    "whole",
    "whole",
    "look",
    "decide",
    "arrive",
    "answer",
    "give up",
    "arrive late",
    "wait",
    "wait",
    "wait",
    "wait",
    "sleep",
]


WAITS = [(0, "wait")] * 4
SILENT = [(0, "whole"), (1, "whole"), *WAITS, (1, "whole")]
LATE_ANSWER = [(0, "look"), (0, "decide"), (0, "arrive"), (1, "whole"), *WAITS, (0, "answer"), *WAITS[:1], (1, "whole")]


@example(count=2, steps=SILENT)
@example(count=2, steps=LATE_ANSWER)
@settings(max_examples=200, deadline=None)
@given(
    count=st.integers(2, 3),
    steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(ACTIONS)), min_size=20, max_size=150),
)
def test_never_two_owners_whatever_is_late_or_lost(count: int, steps: list[tuple[int, str]]) -> None:
    contenders = [Contender(Lease(f"c{n}", f"w{n}", LEASE_S), 1000.0 * n) for n in range(count)]
    stored: list[LeaseRecord] = []
    late: list[Write] = []
    real_s, started = 0.0, 0
    expanded = [
        (who, small)
        for who, action in steps
        for small in (["look", "decide", "arrive", "answer"] if action == "whole" else [action])
    ]
    for who, action in expanded:
        one = contenders[who % count]
        now_s = real_s + one.ahead_s
        if one.lease.lost(now_s) and one.asked is None:
            # Its gateway ended, and was started again.
            started += 1
            one.lease = Lease("again", f"again{started}", LEASE_S)
        if action == "look":
            one.lease.observe(len(stored), stored[-1] if stored else None, now_s)
        elif action == "decide" and one.asked is None:
            write = one.lease.next_write(now_s)
            one.asked, one.answer = None if write is None else (write, now_s), None
        elif action == "arrive" and one.asked is not None and one.answer is None:
            write = one.asked[0]
            one.answer = write.number == len(stored) + 1
            if one.answer:
                stored.append(write.record)
        elif action == "answer" and one.asked is not None and one.answer is not None:
            if one.answer:
                one.lease.written(*one.asked, now_s)
            else:
                one.lease.observe(len(stored), stored[-1], now_s)
            one.asked = None
        elif action == "give up" and one.asked is not None:
            if one.answer is None:
                late.append(one.asked[0])
            one.asked = None
        elif action == "arrive late" and late:
            write = late.pop(0)
            if write.number == len(stored) + 1:
                stored.append(write.record)
        elif action == "wait":
            real_s += LEASE_S / 5
        elif action == "sleep":
            real_s += LEASE_S * 1.5
        owners = [other.lease.epoch for other in contenders if other.lease.holds(real_s + other.ahead_s)]
        assert len(owners) <= 1
        writers: dict[int, str] = {}
        for record in stored:
            assert writers.setdefault(record.epoch, record.writer) == record.writer
        assert [record.epoch for record in stored] == sorted(record.epoch for record in stored)


def test_a_contender_waits_a_whole_lease_of_silence_by_its_own_clock() -> None:
    taker, record = Lease("b", "wb", LEASE_S), LeaseRecord("a", "wa", 3, LEASE_S, 1)
    taker.observe(7, record, 100.0)
    assert taker.next_write(109.9) is None
    taker.observe(8, record, 109.0)
    assert taker.next_write(118.9) is None
    write = taker.next_write(119.0)
    assert write is not None
    assert (write.number, write.record.epoch, write.record.holder) == (9, 4, "b")


def test_what_was_given_back_is_free_at_once() -> None:
    lease = Lease("a", "wa", LEASE_S)
    write = lease.next_write(0.0)
    assert write is not None
    lease.written(write, 0.0, 1.0)
    assert lease.holds(9.9)
    assert lease.lost(10.0)
    released = lease.release()
    other = Lease("b", "wb", LEASE_S)
    other.observe(released.number, released.record, 5.0)
    taken = other.next_write(5.0)
    assert taken is not None
    assert taken.record.epoch == 2


class Cut(FolderStore):
    """A folder that can be made unreachable."""

    cut = False

    def list(self, prefix: str, *, after: str = ""):  # type: ignore[no-untyped-def]  # noqa: ANN201 -- as the base
        if self.cut:
            raise StoreUnavailableError("the cable is out")
        return super().list(prefix, after=after)


def contender(store: FolderStore, name: str, lease_s: float = 1.5) -> Ownership:
    return Ownership(store, "town", name, SystemClock(), lease_s)


async def test_the_next_owner_comes_at_once_after_an_orderly_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FolderStore(tmp_path)
    second = contender(store, "second", 3.0)
    config = GatewayConfig(state_dir=tmp_path, fleet="town", object_store=BucketFolderConfig(folder=tmp_path))
    async with owned_fleet(config, SystemClock()) as first:
        assert first is not None
        await first.begin()
        assert first.holds
        waiting = asyncio.create_task(second.take())
        await until(lambda: "waiting until the owner stops" in caplog.text)
        assert not second.holds
    await asyncio.wait_for(waiting, DEADLINE_S)
    assert (first.epoch, second.epoch) == (1, 2)


async def test_an_owner_out_of_reach_stops_before_another_takes_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cut = Cut(tmp_path)
    first, second = contender(cut, "first"), contender(FolderStore(tmp_path), "second")
    await first.take()
    keeping = asyncio.create_task(first.keep())
    cut.cut = True
    taking = asyncio.create_task(second.take())
    while not taking.done():
        assert not (first.holds and second.holds)
        await asyncio.sleep(0.01)
    assert not first.holds
    await taking
    assert "waiting until the owner stops, or is silent for 1.5s" in caplog.text
    await asyncio.wait_for(keeping, DEADLINE_S)
    assert "the cable is out" in str(first.failure)
    assert second.epoch == 2


async def test_a_sleeper_hears_who_took_over(tmp_path: Path) -> None:
    first, second = contender(FolderStore(tmp_path), "first"), contender(FolderStore(tmp_path), "second", 2.0)
    await first.take()
    await asyncio.wait_for(second.take(), DEADLINE_S)
    await first.keep()
    assert not first.holds
    assert first.failure is not None
    await first.release()
    assert second.epoch == 2


async def test_all_gateways_of_a_fleet_use_what_was_given_first(tmp_path: Path) -> None:
    first, second = contender(FolderStore(tmp_path), "first"), contender(FolderStore(tmp_path), "second")
    assert first.agreed("queries/q", "a") == "a"
    assert second.agreed("queries/q", "b") == "a"
    assert second.agreed("queries/r", "b") == "b"
    assert first.agreed("queries/q", "c") == "a"
    other = Ownership(FolderStore(tmp_path), "village", "third", SystemClock(), 1.5)
    assert other.agreed("queries/q", "d") == "d"
    assert first.vm_tag == second.vm_tag != other.vm_tag
    # The lease is not disturbed by it.
    await first.begin()
    await first.end()
    await asyncio.wait_for(second.begin(), DEADLINE_S)
    assert second.epoch == 2
    await second.end()


async def test_a_store_out_of_reach_is_said(tmp_path: Path) -> None:
    class Silent(FolderStore):
        def get(self, name: str, *, bytes_max: int) -> None:
            raise StoreUnavailableError("the cable is out")

    with pytest.raises(StateError, match="queries/q cannot be read or written: the cable is out"):
        contender(Silent(tmp_path), "first").agreed("queries/q", "a")


async def test_what_is_no_lease_is_said(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("fleets/town/000000000001", b"?")
    with pytest.raises(StateError, match="is not a lease"):
        await contender(store, "first").take()


async def test_without_a_fleet_nothing_is_owned(tmp_path: Path) -> None:
    async with owned_fleet(GatewayConfig(state_dir=tmp_path), SystemClock()) as ownership:
        assert ownership is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"fleet": "town"}, "a fleet needs an object_store"),
        ({"quota": {"name": "town", "max_vms": 2}}, "a quota needs an object_store"),
        ({"object_store": {"folder": "x"}}, "without a fleet or a quota nothing"),
        ({"fleet": "town", "object_store": {"folder": "x"}, "lease": "4s"}, "too short for an owner to renew it"),
    ],
)
def test_a_fleet_and_its_store_go_together(given: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        GatewayConfig.model_validate({"state_dir": "state", **given})
