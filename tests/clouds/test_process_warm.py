"""Warm hosts: assigned after the emulated boot time, returned alive, never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psutil
import pytest

from infra.clouds.base import BootError, CapacityError
from infra.clouds.process import ProcessCloud
from tests.clouds.contract import TAGS, user_data
from tests.clouds.leaping_clock import LeapingClock

MakeCloud = Callable[..., ProcessCloud]
Workers = Callable[[], list[psutil.Process]]


class Boot:
    """An emulated boot that lasts until the test ends it, however long other work takes on a slow machine."""

    def __init__(self, clock: LeapingClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.over = asyncio.Event(), asyncio.Event()
        leap = clock.sleep_until

        async def sleep_until(at_s: float) -> None:
            self.began.set()
            await self.over.wait()
            await leap(at_s)

        monkeypatch.setattr(clock, "sleep_until", sleep_until)


def killed(workers: Workers) -> None:
    for process in workers():
        process.kill()
        process.wait(60)


async def test_a_warm_host_is_handed_out_when_the_boot_time_has_passed(
    make_cloud: MakeCloud, clock: LeapingClock, workers: Workers
) -> None:
    cloud = make_cloud(warm=True, boot_s=12.0)
    pool = await cloud.prepare(user_data)
    assert len(pool) == len(workers()) == 2
    assert await cloud.list({}) == []
    ordered_s = clock.now()
    node = await cloud.create("one", TAGS, user_data("ignored"))
    assert clock.now() - ordered_s >= 12.0
    assert clock.leaps_s == [pytest.approx(12.0, abs=0.5)]
    assert (node.boot, node.name, node.host) == ("emulated", "one", pool[0].host)
    await cloud.destroy(node.id)
    await cloud.close()


async def test_a_host_that_is_given_back_keeps_running_and_is_used_again(
    make_cloud: MakeCloud, workers: Workers
) -> None:
    cloud = make_cloud(warm=True, max_vms=1)
    await cloud.prepare(user_data)
    (before,) = workers()
    first = await cloud.create("first", TAGS, user_data("a"))
    await cloud.destroy(first.id)
    second = await cloud.create("second", TAGS, user_data("b"))
    assert second.host == first.host
    assert workers() == [before]
    await cloud.destroy(second.id)
    await cloud.close()
    assert workers() == []


async def test_a_restarted_gateway_finds_the_pool_again(make_cloud: MakeCloud, workers: Workers) -> None:
    asked: list[str] = []

    def counted(host: str) -> str:
        asked.append(host)
        return user_data(host)

    first = await make_cloud(warm=True).prepare(counted)
    again = make_cloud(warm=True)
    assert await again.prepare(counted) == first
    assert len(asked) == len(workers()) == 2
    await again.close()


async def test_a_dead_warm_host_is_replaced_at_the_next_prepare(make_cloud: MakeCloud, workers: Workers) -> None:
    cloud = make_cloud(warm=True, max_vms=1)
    (before,) = await cloud.prepare(user_data)
    killed(workers)
    (after,) = await cloud.prepare(user_data)
    assert after.host != before.host
    assert len(workers()) == 1
    await cloud.close()


async def test_without_a_living_warm_host_one_is_really_booted(make_cloud: MakeCloud, workers: Workers) -> None:
    cloud = make_cloud(warm=True, max_vms=1)
    await cloud.prepare(user_data)
    killed(workers)
    node = await cloud.create("one", TAGS, user_data("one"))
    assert (node.boot, node.host) == ("real", "one")
    await cloud.destroy(node.id)
    assert workers() == []
    await cloud.close()


async def test_a_host_that_dies_while_it_is_waited_for_is_a_boot_error(
    make_cloud: MakeCloud, workers: Workers, clock: LeapingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = make_cloud(warm=True, max_vms=1, boot_s=0.5)
    await cloud.prepare(user_data)
    boot = Boot(clock, monkeypatch)
    order = asyncio.create_task(cloud.create("one", TAGS, user_data("one")))
    await boot.began.wait()
    assert await cloud.list(TAGS)
    killed(workers)
    boot.over.set()
    with pytest.raises(BootError):
        await order
    assert await cloud.list({}) == []


async def test_an_order_that_is_cancelled_while_booting_goes_back_to_the_pool(
    make_cloud: MakeCloud, clock: LeapingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = make_cloud(warm=True, max_vms=1, boot_s=0.9)
    (host,) = await cloud.prepare(user_data)
    boot = Boot(clock, monkeypatch)
    order = asyncio.create_task(cloud.create("one", TAGS, user_data("one")))
    await boot.began.wait()
    assert [node.state for node in await cloud.list(TAGS)] == ["starting"]
    order.cancel()
    with pytest.raises(asyncio.CancelledError):
        await order
    boot.over.set()
    assert await cloud.list({}) == []
    assert [node.host for node in await cloud.prepare(user_data)] == [host.host]
    await cloud.close()


async def test_prepare_of_a_cold_cloud_starts_nothing(make_cloud: MakeCloud, workers: Workers) -> None:
    assert await make_cloud().prepare(user_data) == []
    assert workers() == []


async def test_no_more_than_max_vms(make_cloud: MakeCloud) -> None:
    cloud = make_cloud(warm=True, max_vms=1)
    await cloud.prepare(user_data)
    node = await cloud.create("one", TAGS, user_data("one"))
    with pytest.raises(CapacityError, match="max_vms is 1"):
        await cloud.create("two", TAGS, user_data("two"))
    await cloud.destroy(node.id)
    await cloud.close()


async def test_a_host_with_other_spark_settings_is_not_handed_out_again(
    make_cloud: MakeCloud, workers: Workers
) -> None:
    first = make_cloud(warm=True, spark_conf={"spark.sql.caseSensitive": "true"})
    await first.prepare(user_data)
    lent = await first.create("lent", TAGS, user_data("a"))
    before = workers()
    second = make_cloud(warm=True)
    await second.prepare(user_data)
    assert len(set(workers()) & set(before)) == 1, "the one that is lent goes on, the one in the pool is replaced"
    await second.destroy(lent.id)
    assert not set(workers()) & set(before)
    await second.close()
