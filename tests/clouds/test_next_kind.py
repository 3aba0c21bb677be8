"""An unusable machine type is tried last the next time; its failure is reported with the VM launched instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from libcloud.compute.base import Node as Machine

from infra.clouds.base import BootError
from infra.clouds.providers.ec2 import Ec2
from infra.clouds.rented import RentedCloud
from tests.clouds.contract import TAGS, user_data
from tests.clouds.ec2_lab import Ec2Lab
from tests.clouds.leaping_clock import LeapingClock
from tests.connectors.s3_server import Fault, FaultProxy, Reply, Request, S3Server

ZONES = ("eu-west-1a", "eu-west-1b")


class LeapingWallClock(LeapingClock):
    """Its skipped sleeps also move the wall clock, by which unusable types are remembered."""

    def wall(self) -> float:
        return super().wall() + sum(self.leaps_s)


@pytest.fixture
def clock() -> LeapingClock:
    return LeapingWallClock()


def kinds(ec2: Ec2Lab) -> list[tuple[str, str]]:
    return [(instance["InstanceType"], instance["Placement"]["AvailabilityZone"]) for instance in ec2.instances()]


async def test_after_a_machine_that_never_boots_the_next_zone_is_tried_and_then_the_next_size(ec2: Ec2Lab) -> None:
    tried: list[tuple[str, str]] = []
    seen: set[str] = set()

    async def note_and_never(address: str, port: int, host: str) -> bool:
        if host not in seen:
            tried.extend(kinds(ec2))
            seen.add(host)
        return False

    cloud = ec2.cloud(is_host=note_and_never, account={"zones": ZONES}, boot_within_s=1.0)
    for number in range(4):
        with pytest.raises(BootError, match="nothing listens"):
            await cloud.create(f"vm-{number}", TAGS, user_data(f"vm-{number}"))
        assert ec2.instances() == []
    assert tried == [("m5.large", ZONES[0]), ("m5.large", ZONES[1]), ("m5.xlarge", ZONES[0]), ("m5.xlarge", ZONES[1])]


async def test_after_a_machine_that_booted_the_wrong_thing_another_kind_is_ordered_for_an_hour(
    ec2: Ec2Lab, clock: LeapingClock
) -> None:
    cloud = ec2.cloud()
    wrong = await cloud.create("vm-1", TAGS, user_data("vm-1"))
    assert wrong.size == "m5.large"
    cloud.unfit(wrong)
    await cloud.destroy(wrong.id)
    right = await cloud.create("vm-2", TAGS, user_data("vm-2"))
    assert right.size == "m5.xlarge"
    await clock.sleep_until(clock.now() + 3601.0)
    later = await cloud.create("vm-3", TAGS, user_data("vm-3"))
    assert later.size == "m5.large"
    for node in (right, later):
        await cloud.destroy(node.id)
    assert cloud.kind_of == {}, "nothing is remembered of machines that are given back"


async def never(address: str, port: int, host: str) -> bool:
    return False


async def ordered_size(cloud: RentedCloud) -> str:
    node = await cloud.create("vm-1", TAGS, user_data("vm-1"))
    await cloud.destroy(node.id)
    return node.size


async def test_a_restarted_gateway_does_not_pay_for_the_same_boot_again(
    ec2: Ec2Lab, clock: LeapingClock, tmp_path: Path
) -> None:
    memory = tmp_path / "unfit-kinds.json"
    with pytest.raises(BootError):
        await ec2.cloud(is_host=never, boot_within_s=1.0, memory=memory).create("vm-1", TAGS, user_data("vm-1"))
    assert await ordered_size(ec2.cloud(memory=memory)) == "m5.xlarge"
    assert await ordered_size(ec2.cloud()) == "m5.large", "without the file it would"
    await clock.sleep_until(clock.now() + 3601.0)
    assert await ordered_size(ec2.cloud(memory=memory)) == "m5.large"


async def test_a_kind_that_came_up_again_is_as_good_as_before(ec2: Ec2Lab, tmp_path: Path) -> None:
    memory = tmp_path / "unfit-kinds.json"
    only = {"sizes": ("m5.large",)}
    with pytest.raises(BootError):
        await ec2.cloud(is_host=never, boot_within_s=1.0, memory=memory).create("vm-1", TAGS, user_data("vm-1"))
    assert await ordered_size(ec2.cloud(memory=memory, account=only)) == "m5.large"
    assert await ordered_size(ec2.cloud(memory=memory)) == "m5.large"


@pytest.fixture
def throttled_and_full(moto_server: S3Server) -> Callable[[], FaultProxy]:
    def make() -> FaultProxy:
        storm = iter([Reply(429, "slow down", (("Retry-After", "7"),))])
        full = Reply(
            500,
            "<Response><Errors><Error><Code>InsufficientInstanceCapacity</Code><Message>none</Message></Error></Errors>"
            "</Response>",
        )

        def fault(request: Request) -> Fault | Reply:
            if b"Action=RunInstances" not in request.body:
                return ""
            return full if b"m5.large" in request.body else next(storm, "")

        return FaultProxy(moto_server.port, fault)

    return make


async def test_what_went_wrong_before_is_told_with_the_machine(
    ec2: Ec2Lab, throttled_and_full: Callable[[], FaultProxy]
) -> None:
    proxy = throttled_and_full()
    cloud = ec2.cloud(endpoint=proxy.endpoint)
    node = await cloud.create("vm-1", TAGS, user_data("vm-1"))
    assert node.size == "m5.xlarge"
    assert len(node.failures) == 2
    assert node.failures[0].startswith("m5.large: EC2")
    assert "name more sizes or zones" in node.failures[0]
    assert "asks for fewer requests; retry in 7 s" in node.failures[1].replace("retry in 8 s", "retry in 7 s")
    await cloud.destroy(node.id)
    proxy.stop()


async def test_a_machine_without_the_address_that_is_dialled_is_told_as_such(
    ec2: Ec2Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = ec2.cloud(boot_within_s=1.0)
    listed = Ec2.machines

    def without_addresses(self: Ec2, driver: Any, tag: str) -> list[Machine]:
        machines = listed(self, driver, tag)
        for machine in machines:
            machine.public_ips = []
        return machines

    monkeypatch.setattr(Ec2, "machines", without_addresses)
    with pytest.raises(BootError, match=r"has no public address after 1 s: .*cloud\.address"):
        await cloud.create("vm-1", TAGS, user_data("vm-1"))
    assert ec2.instances() == []
