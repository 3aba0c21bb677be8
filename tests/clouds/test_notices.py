"""How a spot VM polls its metadata service, tested over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from infra.clouds.notices import reclaimed_in_s
from tests.clouds.leaping_clock import LeapingClock
from tests.clouds.metadata_server import MetadataServer
from tests.support.waiting import until


@pytest.fixture
async def metadata() -> AsyncIterator[MetadataServer]:
    async with MetadataServer() as server:
        yield server


async def asked(metadata: MetadataServer, times: int) -> None:
    await until(lambda: metadata.asked >= times)


@pytest.mark.parametrize(("provider", "least_s", "most_s"), [("ec2", 60.0, 120.0), ("gce", 30.0, 30.0)])
async def test_the_notice_says_how_long_is_left(
    metadata: MetadataServer, clock: LeapingClock, provider: str, least_s: float, most_s: float
) -> None:
    notice = asyncio.create_task(reclaimed_in_s(provider, clock, metadata.url))
    await asked(metadata, 3)
    assert not notice.done()
    metadata.take_back(120.0)
    assert least_s <= await asyncio.wait_for(notice, 60) <= most_s
    assert all(4.5 <= leap_s <= 5.0 for leap_s in clock.leaps_s)


async def test_a_notice_that_comes_late_leaves_no_time_and_not_less(
    metadata: MetadataServer, clock: LeapingClock
) -> None:
    metadata.take_back(-30.0)
    assert await asyncio.wait_for(reclaimed_in_s("ec2", clock, metadata.url), 60) == 0.0


@pytest.mark.parametrize("trouble", ["hangs", "fails", "nonsense"])
async def test_a_service_in_trouble_is_asked_again_and_said_once(
    metadata: MetadataServer, clock: LeapingClock, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    metadata.trouble = trouble
    notice = asyncio.create_task(reclaimed_in_s("ec2", clock, metadata.url))
    await asked(metadata, 3)
    assert not notice.done()
    assert len([record for record in caplog.records if "cannot check whether" in record.getMessage()]) == 1
    metadata.trouble = ""
    metadata.take_back(100.0)
    assert 50.0 < await asyncio.wait_for(notice, 60) <= 100.0


async def test_a_machine_without_such_a_service_goes_on(clock: LeapingClock) -> None:
    notice = asyncio.create_task(reclaimed_in_s("ec2", clock, "http://127.0.0.1:9"))
    await until(lambda: len(clock.leaps_s) >= 3)
    assert not notice.done()
    notice.cancel()
    with pytest.raises(asyncio.CancelledError):
        await notice


async def test_a_provider_without_notices_is_a_mistake(clock: LeapingClock) -> None:
    with pytest.raises(ValueError, match="openstack gives no notice"):
        await reclaimed_in_s("openstack", clock)
