"""DigitalOcean through libcloud keeps the contract of clouds; after a refusal the next size or region is tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from infra.clouds.base import CapacityError, CredentialsError, OrderError, QuotaError
from infra.clouds.providers.account import Account
from infra.clouds.rented import RentedCloud
from infra.link.keys.trust import UserData
from tests.clouds.contract import CHECKS, TAGS, Subject, check_cloud, user_data
from tests.clouds.droplet_lab import TOKEN, Droplets
from tests.clouds.ec2_lab import PORT, always, as_json, never
from tests.clouds.leaping_clock import LeapingClock

Check = Callable[[Subject], Awaitable[None]]
MakeCloud = Callable[..., RentedCloud]
FULL: tuple[int, str, dict[str, str]] = (422, "Size is not available in this region.", {})


@pytest.fixture
def droplets() -> Iterator[Droplets]:
    lab = Droplets()
    yield lab
    lab.stop()


@pytest.fixture
def cloud(droplets: Droplets, clock: LeapingClock) -> MakeCloud:
    def make(secret: str = TOKEN, **given: Any) -> RentedCloud:
        account = Account(
            provider="digitalocean",
            key="spillway",
            secret=secret,
            endpoint=droplets.endpoint,
            image="debian-12-x64",
            sizes=("c-4", "s-4vcpu-8gb"),
            zones=("fra1", "ams3"),
            port=PORT,
        )
        return RentedCloud(account, as_json, clock, **{"is_host": always, **given})

    return make


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_digitalocean(check: Check, droplets: Droplets, cloud: MakeCloud) -> None:
    subject = Subject(
        new=cloud,
        broken=lambda: cloud(is_host=never, boot_within_s=20.0),
        remains=lambda: len(droplets.there),
    )
    await check_cloud(subject, check)


async def test_the_order_itself_has_the_tags_and_the_user_data(droplets: Droplets, cloud: MakeCloud) -> None:
    there = cloud()
    node = await there.create("vm-1", TAGS, user_data("vm-1-0a"))
    (order,) = droplets.orders
    assert (order["name"], order["size"], order["image"], order["region"]) == (
        "vm-1-0a",
        "c-4",
        "debian-12-x64",
        "fra1",
    )
    assert {"gateway:g1", "app:spillway", "spillway-vm-host:vm-1-0a", "spillway-vm-name:vm-1"} <= set(order["tags"])
    assert UserData.from_json(order["user_data"]).host == "vm-1-0a"
    assert (node.size, node.port, dict(node.tags)) == ("c-4", PORT, TAGS)
    await there.destroy(node.id)


async def test_what_cannot_be_had_falls_to_the_next_region_and_size(droplets: Droplets, cloud: MakeCloud) -> None:
    droplets.refusals = [FULL, FULL]
    node = await cloud().create("vm-1", TAGS, user_data("vm-1"))
    assert [(order["size"], order["region"]) for order in droplets.orders] == [
        ("c-4", "fra1"),
        ("c-4", "ams3"),
        ("s-4vcpu-8gb", "fra1"),
    ]
    assert len(node.failures) == 2
    droplets.refusals = [FULL] * 4
    with pytest.raises(CapacityError, match="name more sizes or zones"):
        await cloud().create("vm-2", TAGS, user_data("vm-2"))
    droplets.refusals = [(422, "creating this/these droplet(s) will exceed your droplet limit", {})] * 4
    with pytest.raises(QuotaError, match="lower max_vms"):
        await cloud().create("vm-2", TAGS, user_data("vm-2"))
    assert len(droplets.there) == 1


async def test_a_storm_is_waited_for_as_long_as_it_says(
    droplets: Droplets, cloud: MakeCloud, clock: LeapingClock
) -> None:
    droplets.refusals = [(429, "API Rate limit exceeded.", {"Retry-After": "17"})]
    await cloud().create("vm-1", TAGS, user_data("vm-1"))
    assert max(clock.leaps_s) >= 16.9
    assert (len(droplets.orders), len(droplets.there)) == (2, 1)


async def test_an_order_whose_answer_is_lost_gives_one_machine(droplets: Droplets, cloud: MakeCloud) -> None:
    droplets.lose = True
    node = await cloud().create("vm-1", TAGS, user_data("vm-1"))
    assert [str(number) for number in droplets.there] == [node.id]


async def test_errors_that_are_the_user_s(droplets: Droplets, cloud: MakeCloud) -> None:
    with pytest.raises(CredentialsError, match=r"cloud\.credentials"):
        await cloud(secret="wrong").list({})
    droplets.refusals = [(422, "You specified an invalid image for Droplet creation.", {})]
    with pytest.raises(OrderError, match="invalid image"):
        await cloud().create("vm-1", TAGS, user_data("vm-1"))
    assert droplets.there == {}


async def test_machines_of_others_and_pages_of_them_are_passed_over(droplets: Droplets, cloud: MakeCloud) -> None:
    theirs = {"name": "web", "size_slug": "s-1"}
    there = cloud()
    ours = [await there.create(f"vm-{n}", TAGS, user_data(f"vm-{n}")) for n in range(3)]
    for number in (1, 2, 3):
        droplet = dict(next(iter(droplets.there.values())), id=number, tags=["web", "prod:eu"], **theirs)
        droplets.there[number] = droplet
    assert [node.id for node in await there.list({})] == [node.id for node in ours]
    for node in ours:
        await there.destroy(node.id)
    assert set(droplets.there) == {1, 2, 3}
