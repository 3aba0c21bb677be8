"""Every way in which a provider may fail an order ends with the next size or one of our errors, and leaves no VM."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from infra.clouds.base import (
    BootError,
    CapacityError,
    CredentialsError,
    Node,
    OrderError,
    QuotaError,
    ThrottledError,
    UnavailableError,
)
from infra.clouds.providers.account import SpotTerms
from infra.link.keys.trust import UserData
from tests.clouds.contract import TAGS, user_data
from tests.clouds.ec2_lab import PORT, Ec2Lab, never
from tests.clouds.leaping_clock import LeapingClock
from tests.connectors.s3_server import FaultProxy, Reply, Request, S3Server
from tests.support.waiting import until

MakeProxy = Callable[..., FaultProxy]


def error(code: str, status: int) -> Reply:
    return Reply(
        status, f"<Response><Errors><Error><Code>{code}</Code><Message>so it is</Message></Error></Errors></Response>"
    )


def orders(request: Request) -> bool:
    return b"Action=RunInstances" in request.body


@pytest.fixture
def proxy(moto_server: S3Server) -> Iterator[MakeProxy]:
    made = []

    def make(fault: Callable[[Request], Any], late_s: float = 1.0) -> FaultProxy:
        made.append(FaultProxy(moto_server.port, fault, late_s))
        return made[-1]

    yield make
    for each in made:
        each.stop()


async def test_the_next_size_is_taken_when_there_is_no_capacity(ec2: Ec2Lab, proxy: MakeProxy) -> None:
    full = proxy(lambda r: error("InsufficientInstanceCapacity", 500) if orders(r) and b"m5.large" in r.body else "")
    cloud = ec2.cloud(endpoint=full.endpoint)
    node = await cloud.create("one", TAGS, user_data("one"))
    assert [instance["InstanceType"] for instance in ec2.instances()] == ["m5.xlarge"]
    assert node.size == "m5.xlarge"
    assert await ec2.cloud().list(TAGS) == [node]
    await cloud.destroy(node.id)


async def test_each_size_is_looked_for_in_each_zone_and_all_refusals_are_told(ec2: Ec2Lab, proxy: MakeProxy) -> None:
    asked: list[bytes] = []

    def full(request: Request) -> Any:
        if not orders(request):
            return ""
        asked.append(request.body)
        return error("InstanceLimitExceeded", 400)

    cloud = ec2.cloud(endpoint=proxy(full).endpoint, account={"zones": ("eu-west-1a", "eu-west-1b")})
    with pytest.raises(QuotaError, match=r"m5.large in eu-west-1a.*m5.xlarge in eu-west-1b.*max_vms"):
        await cloud.create("one", TAGS, user_data("one"))
    assert [(b"m5.xlarge" in body, b"eu-west-1b" in body) for body in asked] == [
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    ]
    assert ec2.instances() == []


async def test_no_capacity_anywhere_is_an_error_that_the_gateway_knows(ec2: Ec2Lab, proxy: MakeProxy) -> None:
    cloud = ec2.cloud(
        endpoint=proxy(lambda r: error("InsufficientInstanceCapacity", 500) if orders(r) else "").endpoint
    )
    with pytest.raises(CapacityError, match="name more sizes"):
        await cloud.create("one", TAGS, user_data("one"))


@pytest.mark.parametrize(
    "storm",
    [
        Reply(429, "slow down", (("Retry-After", "7"),)),
        Reply(503, "Service Unavailable", (("Retry-After", "7"),)),
        error("RequestLimitExceeded", 503),
    ],
    ids=["429", "503", "a word"],
)
async def test_a_storm_is_waited_for(ec2: Ec2Lab, proxy: MakeProxy, clock: LeapingClock, storm: Reply) -> None:
    stormy = proxy(lambda r: storm if r.count <= 4 else "")
    cloud = ec2.cloud(endpoint=stormy.endpoint)
    node = await cloud.create("one", TAGS, user_data("one"))
    assert stormy.faults == 4
    assert len(ec2.instances()) == 1
    if storm.headers:
        assert len([leap_s for leap_s in clock.leaps_s if leap_s >= 6.9]) >= 4
    await cloud.destroy(node.id)


async def test_a_storm_without_end_is_an_error_after_a_bounded_number_of_tries(ec2: Ec2Lab, proxy: MakeProxy) -> None:
    stormy = proxy(lambda _: Reply(429, "no"))
    with pytest.raises(ThrottledError):
        await ec2.cloud(endpoint=stormy.endpoint).create("one", TAGS, user_data("one"))
    assert 2 <= stormy.count <= 8


async def test_nobody_waits_for_an_hour(ec2: Ec2Lab, proxy: MakeProxy) -> None:
    stormy = proxy(lambda _: Reply(429, "no", (("Retry-After", "3600"),)))
    with pytest.raises(ThrottledError) as caught:
        await ec2.cloud(endpoint=stormy.endpoint).create("one", TAGS, user_data("one"))
    assert caught.value.after_s == 3600
    assert stormy.count == 1


async def test_an_order_whose_answer_is_lost_gives_one_machine(ec2: Ec2Lab, proxy: MakeProxy) -> None:
    lost = iter(["answer lost", "answer lost"])
    lossy = proxy(lambda r: next(lost, "") if orders(r) else "")
    cloud = ec2.cloud(endpoint=lossy.endpoint)
    node = await cloud.create("one", TAGS, user_data("answer-lost"))
    assert lossy.faults == 1
    assert [instance["InstanceId"] for instance in ec2.instances()] == [node.id]
    await cloud.destroy(node.id)


async def test_an_order_of_which_nothing_more_is_heard_is_given_back(ec2: Ec2Lab, proxy: MakeProxy) -> None:
    deaf = iter(["answer lost", *["503"] * 5])
    lossy = proxy(lambda _: next(deaf, ""))
    with pytest.raises(UnavailableError):
        await ec2.cloud(endpoint=lossy.endpoint).create("one", TAGS, user_data("unheard"))
    assert lossy.faults == 6
    assert ec2.instances() == []
    assert ec2.instances("terminated", "shutting-down")


async def test_a_machine_whose_order_is_answered_too_late_is_found_again(ec2: Ec2Lab, proxy: MakeProxy) -> None:
    # libcloud has no deadline for a whole call: the thread goes on when nobody waits any more.
    slow = proxy(lambda r: "late" if orders(r) else "", 8.0)
    cloud = ec2.cloud(endpoint=slow.endpoint, call_s=4.0)
    node = await cloud.create("one", TAGS, user_data("late-answer"))
    assert [instance["InstanceId"] for instance in ec2.instances()] == [node.id]
    await cloud.destroy(node.id)
    await cloud.close()


async def test_unknown_images_sizes_and_regions_are_the_config_s_fault(ec2: Ec2Lab) -> None:
    with pytest.raises(OrderError, match="ami-0nothere"):
        await ec2.cloud(account={"image": "ami-0nothere"}).create("one", TAGS, user_data("one"))
    with pytest.raises(OrderError, match=r"m99\.large"):
        await ec2.cloud(account={"sizes": ("m99.large",)}).create("one", TAGS, user_data("one"))
    assert ec2.instances() == []


async def test_wrong_credentials_are_said_at_once(ec2: Ec2Lab, moto_server: S3Server) -> None:
    def authenticate_after(actions: str) -> None:
        where = f"{moto_server.endpoint}/moto-api/reset-auth"
        request = urllib.request.Request(where, data=actions.encode(), headers={"Content-Type": "text/plain"})
        urllib.request.urlopen(request).read()

    authenticate_after("0")
    try:
        with pytest.raises(CredentialsError, match=r"cloud\.credentials"):
            await ec2.cloud().create("one", TAGS, user_data("one"))
        with pytest.raises(CredentialsError):
            await ec2.cloud().list({})
    finally:
        authenticate_after("Infinity")
    assert ec2.instances() == []


async def test_a_provider_that_cannot_be_reached(ec2: Ec2Lab) -> None:
    with pytest.raises(UnavailableError, match="reached from here"):
        await ec2.cloud(endpoint="http://127.0.0.1:9").create("one", TAGS, user_data("one"))


async def test_a_machine_that_ends_while_it_boots_is_not_waited_for(ec2: Ec2Lab, clock: LeapingClock) -> None:
    async def and_ends(address: str, port: int, host: str) -> bool:
        ec2.client().stop_instances(InstanceIds=[instance["InstanceId"] for instance in ec2.instances()])
        return False

    with pytest.raises(BootError, match="stopped while it booted"):
        await ec2.cloud(is_host=and_ends, boot_within_s=3600.0).create("one", TAGS, user_data("one"))
    assert sum(clock.leaps_s) < 60
    assert ec2.instances() == []


async def test_one_that_the_provider_ended_says_why(ec2: Ec2Lab) -> None:
    async def and_is_ended(address: str, port: int, host: str) -> bool:
        ec2.client().terminate_instances(InstanceIds=[instance["InstanceId"] for instance in ec2.instances()])
        return False

    with pytest.raises(BootError, match="stopped while it booted: User initiated"):
        await ec2.cloud(is_host=and_is_ended, boot_within_s=3600.0).create("one", TAGS, user_data("one"))


async def test_a_machine_may_take_ten_minutes(ec2: Ec2Lab, clock: LeapingClock) -> None:
    async def late(address: str, port: int, host: str) -> bool:
        return sum(clock.leaps_s) > 600

    cloud = ec2.cloud(is_host=late)
    node = await cloud.create("slow", TAGS, user_data("slow"))
    assert node.state == "running"
    await cloud.destroy(node.id)


async def test_orders_carry_their_tags_and_end_for_good_when_they_shut_down(ec2: Ec2Lab, proxy: MakeProxy) -> None:
    seen: list[Request] = []

    def watch(request: Request) -> str:
        seen.append(request)
        return ""

    cloud = ec2.cloud(endpoint=proxy(watch).endpoint)
    node = await cloud.create("one", TAGS, user_data("one-host"))
    (order,) = [request.body for request in seen if orders(request)]
    assert b"InstanceInitiatedShutdownBehavior=terminate" in order
    assert b"TagSpecification.1.Tag" in order
    assert not any("CreateTags" in request.path or b"CreateTags" in request.body for request in seen)
    # Servers and proxies write down URLs, and user data holds a secret.
    assert not any("UserData" in request.path for request in seen)
    told = UserData.from_json(ec2.user_data(node.id))
    assert (told.host, told.listen_host, told.listen_port) == ("one-host", "0.0.0.0", PORT)
    await cloud.destroy(node.id)


@pytest.mark.parametrize("most_usd", [None, 0.035])
async def test_spare_machines_are_ordered_as_such(ec2: Ec2Lab, proxy: MakeProxy, most_usd: float | None) -> None:
    seen: list[bytes] = []

    def watch(request: Request) -> str:
        seen.append(request.body)
        return ""

    cloud = ec2.cloud(endpoint=proxy(watch).endpoint, account={"spot": SpotTerms(most_usd)})
    node = await cloud.create("one", TAGS, user_data("one-host"))
    (order,) = [parse_qs(body.decode()) for body in seen if b"Action=RunInstances" in body]
    assert order["InstanceMarketOptions.MarketType"] == ["spot"]
    assert order.get("InstanceMarketOptions.SpotOptions.MaxPrice") == (None if most_usd is None else ["0.035"])
    assert order["InstanceInitiatedShutdownBehavior"] == ["terminate"]
    await cloud.destroy(node.id)


async def test_a_price_that_is_too_low_now_falls_to_the_next_size(ec2: Ec2Lab, proxy: MakeProxy) -> None:
    low = proxy(lambda r: error("SpotMaxPriceTooLow", 400) if orders(r) and b"m5.large" in r.body else "")
    cloud = ec2.cloud(endpoint=low.endpoint, account={"spot": SpotTerms(0.035)})
    node = await cloud.create("one", TAGS, user_data("one"))
    assert [instance["InstanceType"] for instance in ec2.instances()] == ["m5.xlarge"]
    await cloud.destroy(node.id)


async def test_machines_of_others_are_neither_listed_nor_ended(ec2: Ec2Lab) -> None:
    theirs = ec2.client().run_instances(ImageId="ami-12c6146b", InstanceType="m5.large", MinCount=1, MaxCount=1)
    theirs_id = theirs["Instances"][0]["InstanceId"]
    cloud = ec2.cloud()
    assert await cloud.list({}) == []
    await cloud.destroy(theirs_id)
    assert [instance["InstanceId"] for instance in ec2.instances()] == [theirs_id]


async def test_user_data_that_is_too_long_is_refused_before_anything_is_ordered(ec2: Ec2Lab) -> None:
    async def long(_: UserData) -> str:
        return "x" * 20_000

    with pytest.raises(OrderError, match="20000 bytes"):
        await ec2.cloud(boot_script=long).create("one", TAGS, user_data("one"))
    assert ec2.instances() == []


async def test_tags_that_the_provider_would_not_take_are_refused(ec2: Ec2Lab) -> None:
    with pytest.raises(OrderError, match="aws:mine"):
        await ec2.cloud().create("one", {"aws:mine": "x"}, user_data("one"))


async def test_a_stopped_machine_is_gone_but_listed_until_it_is_destroyed(ec2: Ec2Lab) -> None:
    cloud = ec2.cloud()
    node = await cloud.create("one", TAGS, user_data("one"))
    ec2.client().stop_instances(InstanceIds=[node.id])
    (listed,) = await cloud.list(TAGS)
    assert (listed.state, listed.address, listed.port) == ("gone", "", 0)
    await cloud.destroy(node.id)
    assert await cloud.list({}) == []


async def test_several_at_a_time(ec2: Ec2Lab) -> None:
    cloud = ec2.cloud()
    made: list[Node] = await asyncio.gather(*(cloud.create(f"n{i}", TAGS, user_data(f"n{i}")) for i in range(6)))
    assert {node.id for node in await cloud.list(TAGS)} == {node.id for node in made}
    await asyncio.gather(*(cloud.destroy(node.id) for node in made))
    assert ec2.instances() == []


async def test_a_silent_machine_is_given_back_when_its_order_is_cancelled_twice(ec2: Ec2Lab) -> None:
    cloud = ec2.cloud(is_host=never)
    order = asyncio.create_task(cloud.create("late", TAGS, user_data("late")))
    await until(ec2.instances)
    order.cancel()
    await asyncio.sleep(0)
    order.cancel()
    with pytest.raises(asyncio.CancelledError):
        await order
    await cloud.close()
    assert ec2.instances() == []
