"""OpenStack through libcloud keeps the contract of clouds, also when it finds no host for an accepted order."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from infra.clouds.base import BootError, CapacityError, CredentialsError, OrderError, QuotaError
from infra.clouds.providers.account import Account
from infra.clouds.rented import RentedCloud
from infra.link.keys.trust import UserData
from tests.clouds.contract import CHECKS, TAGS, Subject, check_cloud, user_data
from tests.clouds.ec2_lab import PORT, always, as_json, never
from tests.clouds.leaping_clock import LeapingClock
from tests.clouds.openstack_lab import FLAVORS, IMAGE, PASSWORD, PROJECT, REGION, USER, Stack

Check = Callable[[Subject], Awaitable[None]]
MakeCloud = Callable[..., RentedCloud]
NO_HOST = "No valid host was found. There are not enough hosts available."


@pytest.fixture
def stack() -> Iterator[Stack]:
    lab = Stack()
    yield lab
    lab.stop()


@pytest.fixture
def cloud(stack: Stack, clock: LeapingClock) -> MakeCloud:
    def make(account: dict[str, Any] | None = None, **given: Any) -> RentedCloud:
        there: dict[str, Any] = {
            "provider": "openstack",
            "key": USER,
            "secret": PASSWORD,
            "endpoint": stack.endpoint,
            "region": REGION,
            "project": PROJECT,
            "image": IMAGE,
            "sizes": FLAVORS,
            "address": "private",
            "port": PORT,
        }
        return RentedCloud(Account(**{**there, **(account or {})}), as_json, clock, **{"is_host": always, **given})

    return make


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_openstack(check: Check, stack: Stack, cloud: MakeCloud) -> None:
    subject = Subject(
        new=cloud,
        broken=lambda: cloud(is_host=never, boot_within_s=20.0),
        remains=lambda: len(stack.there),
    )
    await check_cloud(subject, check)
    assert stack.unknown == [], "libcloud asked for what is not there"


async def test_the_order_itself_has_the_tags_and_the_user_data(stack: Stack, cloud: MakeCloud) -> None:
    there = cloud({"zones": ("nova",), "network": "net-1", "security_groups": ("spillway",)})
    node = await there.create("vm-1", TAGS, user_data("vm-1-ab"))
    (order,) = stack.orders
    assert order["metadata"].items() >= {**TAGS, "spillway-vm-host": "vm-1-ab", "spillway-vm-size": FLAVORS[0]}.items()
    told = UserData.from_json(base64.b64decode(order["user_data"]))
    assert (told.host, told.listen_port) == ("vm-1-ab", PORT)
    assert (order["flavorRef"], order["imageRef"], order["availability_zone"]) == ("0", "uuid-1", "nova")
    assert (order["networks"], order["security_groups"]) == ([{"uuid": "net-1"}], [{"name": "spillway"}])
    await there.destroy(node.id)


async def test_what_is_accepted_and_finds_no_host_falls_to_the_next_size(stack: Stack, cloud: MakeCloud) -> None:
    stack.faults = [NO_HOST]
    there = cloud()
    node = await there.create("vm-1", TAGS, user_data("vm-1"))
    assert (node.size, len(stack.orders)) == (FLAVORS[1], 2)
    assert [server["status"] for server in stack.there.values()] == ["ACTIVE"], "the other is deleted: it is listed"
    assert NO_HOST in node.failures[0]
    await there.destroy(node.id)


async def test_no_host_is_no_reason_to_order_another_size_for_an_hour(stack: Stack, cloud: MakeCloud) -> None:
    stack.faults = [NO_HOST]
    there = cloud()
    for size in (FLAVORS[1], FLAVORS[0]):
        node = await there.create("vm-1", TAGS, user_data("vm-1"))
        assert node.size == size
        await there.destroy(node.id)


async def test_no_host_for_any_size_is_no_capacity_and_costs_nothing(stack: Stack, cloud: MakeCloud) -> None:
    stack.faults = [NO_HOST] * 2
    with pytest.raises(CapacityError, match="no VM is available") as caught:
        await cloud().create("vm-1", TAGS, user_data("vm-1"))
    assert not isinstance(caught.value, BootError), "a machine that never booted is booked"
    assert stack.there == {}


async def test_a_server_that_fails_for_another_reason_has_failed_to_boot(stack: Stack, cloud: MakeCloud) -> None:
    stack.faults = ["Build of instance aborted: Image is unacceptable: Converted to raw, but format is now qcow2"]
    with pytest.raises(BootError, match="Image is unacceptable"):
        await cloud().create("vm-1", TAGS, user_data("vm-1"))
    assert (len(stack.orders), stack.there) == (1, {})


async def test_nothing_more_is_ordered_while_the_one_without_a_host_cannot_be_deleted(
    stack: Stack, cloud: MakeCloud
) -> None:
    stack.faults, stack.stubborn = [NO_HOST], True
    with pytest.raises(CapacityError, match="No valid host"):
        await cloud().create("vm-1", TAGS, user_data("vm-1"))
    assert len(stack.orders) == 1


async def test_a_quota_falls_to_the_next_zone(stack: Stack, cloud: MakeCloud) -> None:
    stack.refusals = [(403, "Quota exceeded for cores: Requested 4, but already used 20 of 20 cores")]
    there = cloud({"zones": ("az1", "az2")})
    node = await there.create("vm-1", TAGS, user_data("vm-1"))
    assert [(order["flavorRef"], order["availability_zone"]) for order in stack.orders] == [("0", "az1"), ("0", "az2")]
    await there.destroy(node.id)
    stack.refusals = [(403, "Quota exceeded for cores: Requested 4, but already used 20 of 20 cores")] * 4
    with pytest.raises(QuotaError, match="ask the provider for more"):
        await there.create("vm-2", TAGS, user_data("vm-2"))


async def test_an_order_whose_answer_is_lost_gives_one_machine(stack: Stack, cloud: MakeCloud) -> None:
    stack.lose = True
    there = cloud()
    node = await there.create("vm-1", TAGS, user_data("vm-1"))
    assert list(stack.there) == [node.id]
    await there.destroy(node.id)


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"secret": "guessed"}, CredentialsError, "cloud.credentials"),
        ({"image": "debian-99"}, OrderError, 'no image "debian-99".*debian-12'),
        ({"sizes": ("m9.huge",)}, OrderError, 'no size "m9.huge".*m1.large'),
        ({"region": "R9"}, OrderError, "cloud in the config"),
    ],
    ids=["password", "image", "size", "region"],
)
async def test_what_is_the_user_s_fault_is_said(
    stack: Stack, cloud: MakeCloud, wrong: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        await cloud(wrong).create("vm-1", TAGS, user_data("vm-1"))
    assert stack.orders == []
