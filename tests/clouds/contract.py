"""The contract of all clouds: each provider's tests run this suite with their own maker.

A maker returns a new client of the same cloud each time it is called, like a gateway that starts again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from infra.clouds.base import BootError, Cloud, CloudError
from infra.link.keys.trust import UserData, new_token

TAGS = {"gateway": "g1", "app": "spillway"}


def user_data(host: str, **extra: str) -> str:
    return UserData(host=host, ca_pem="none", token=new_token(), extra=extra).to_json()


@dataclass
class Subject:
    """A cloud under test.

    ``new`` makes a client, and ``broken`` makes one whose VMs never boot. ``remains`` counts VMs that still exist,
    without the cloud's own list.
    """

    new: Callable[[], Cloud]
    broken: Callable[[], Cloud]
    remains: Callable[[], int]
    made: list[Cloud] = field(default_factory=list)

    def client(self) -> Cloud:
        self.made.append(self.new())
        return self.made[-1]


async def created_machines_are_listed_and_gone_when_destroyed(subject: Subject) -> None:
    cloud = subject.client()
    before_s = time.time()
    node = await cloud.create("one", TAGS, user_data("one"))
    assert (node.name, node.state, dict(node.tags)) == ("one", "running", TAGS)
    assert node.address
    assert 0 < node.port < 65536
    assert before_s - 1 <= node.created_at_s <= time.time() + 1
    assert await cloud.list(TAGS) == [node]
    await cloud.destroy(node.id)
    assert await cloud.list({}) == []


async def destroying_twice_or_the_unknown_is_no_error(subject: Subject) -> None:
    cloud = subject.client()
    node = await cloud.create("one", TAGS, user_data("one"))
    await asyncio.gather(cloud.destroy(node.id), cloud.destroy(node.id))
    await cloud.destroy(node.id)
    await cloud.destroy("vm-never-was")
    assert await cloud.list({}) == []


async def tags_choose_what_is_listed(subject: Subject) -> None:
    cloud = subject.client()
    ours = await cloud.create("ours", TAGS, user_data("ours"))
    other = await cloud.create("other", TAGS | {"gateway": "g2"}, user_data("other"))
    assert ours.id != other.id
    assert [node.id for node in await cloud.list({"app": "spillway"})] == [ours.id, other.id]
    assert [node.id for node in await cloud.list({"gateway": "g2"})] == [other.id]
    assert await cloud.list({"gateway": "g3"}) == []
    await asyncio.gather(cloud.destroy(ours.id), cloud.destroy(other.id))


async def a_new_client_finds_and_ends_what_the_old_one_made(subject: Subject) -> None:
    node = await subject.client().create("one", TAGS, user_data("one"))
    again = subject.client()
    assert await again.list(TAGS) == [node]
    await again.destroy(node.id)
    assert await again.list({}) == []


async def a_machine_that_does_not_come_up_is_reported_and_given_back(subject: Subject) -> None:
    cloud = subject.broken()
    subject.made.append(cloud)
    with pytest.raises(BootError) as caught:
        await cloud.create("lame", TAGS, user_data("lame"))
    assert isinstance(caught.value, CloudError)
    assert "lame" in str(caught.value)
    assert await cloud.list({}) == []


async def a_cancelled_order_is_given_back(subject: Subject) -> None:
    cloud = subject.broken()
    subject.made.append(cloud)
    order = asyncio.create_task(cloud.create("late", TAGS, user_data("late")))
    async with asyncio.timeout(60):
        while not await cloud.list(TAGS):
            await asyncio.sleep(0.01)
    order.cancel()
    with pytest.raises(asyncio.CancelledError):
        await order
    assert await cloud.list({}) == []


CHECKS: list[Callable[[Subject], Awaitable[None]]] = [
    created_machines_are_listed_and_gone_when_destroyed,
    destroying_twice_or_the_unknown_is_no_error,
    tags_choose_what_is_listed,
    a_new_client_finds_and_ends_what_the_old_one_made,
    a_machine_that_does_not_come_up_is_reported_and_given_back,
    a_cancelled_order_is_given_back,
]


async def check_cloud(subject: Subject, check: Callable[[Subject], Awaitable[None]]) -> None:
    """Run one check, then check that no VM is left running."""
    try:
        await check(subject)
    finally:
        for cloud in subject.made:
            for node in await cloud.list({}):
                await cloud.destroy(node.id)
            await cloud.close()
    assert subject.remains() == 0
