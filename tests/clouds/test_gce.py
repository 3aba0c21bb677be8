"""GCE through libcloud keeps the contract of clouds; after a refusal the next zone and then the next size is tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from infra.clouds.base import BootError, CapacityError, CredentialsError, OrderError, QuotaError
from infra.clouds.providers.account import Account, SpotTerms
from infra.clouds.rented import RentedCloud
from tests.clouds.contract import CHECKS, TAGS, Subject, check_cloud, user_data
from tests.clouds.ec2_lab import PORT, always, as_json, never
from tests.clouds.gce_lab import EMAIL, IMAGE, PROJECT, SIZES, ZONES, Gces, key_pem
from tests.clouds.leaping_clock import LeapingClock

Check = Callable[[Subject], Awaitable[None]]
MakeCloud = Callable[..., RentedCloud]
FULL = (0, "ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources available to fulfill the request.")

QUOTA_FOUND_LATER = (0, "QUOTA_EXCEEDED", "Quota 'CPUS' exceeded.  Limit: 8.0 in region europe-west1.")
QUOTA = (403, "quotaExceeded", "Quota 'CPUS' exceeded.  Limit: 8.0 in region europe-west1.")


@pytest.fixture
def gces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gces]:
    lab = Gces()
    lab.reroute(monkeypatch)
    yield lab
    lab.stop()


@pytest.fixture
def cloud(gces: Gces, clock: LeapingClock) -> MakeCloud:
    def make(account: dict[str, Any] | None = None, **given: Any) -> RentedCloud:
        there: dict[str, Any] = {
            "provider": "gce",
            "key": EMAIL,
            "secret": key_pem(),
            "project": PROJECT,
            "image": IMAGE,
            "sizes": SIZES,
            "zones": ZONES,
            "port": PORT,
        }
        return RentedCloud(Account(**{**there, **(account or {})}), as_json, clock, **{"is_host": always, **given})

    return make


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_gce(check: Check, gces: Gces, cloud: MakeCloud) -> None:
    subject = Subject(
        new=cloud,
        broken=lambda: cloud(is_host=never, boot_within_s=20.0),
        remains=lambda: len(gces.there),
    )
    await check_cloud(subject, check)
    assert gces.unknown == [], "libcloud asked for what is not there"


async def test_the_order_itself_has_the_labels_the_script_and_no_rights(gces: Gces, cloud: MakeCloud) -> None:
    there = cloud()
    node = await there.create("vm-1", TAGS, user_data("vm-1-ab"))
    (order,) = gces.orders
    assert (order["name"], order["zone"]) == ("vm-1-ab", ZONES[0])
    assert order["machineType"].endswith(f"/zones/{ZONES[0]}/machineTypes/{SIZES[0]}")
    assert order["labels"].items() >= {**TAGS, "spillway-vm-host": "vm-1-ab", "spillway-vm-size": SIZES[0]}.items()
    assert [item["key"] for item in order["metadata"]["items"]] == ["startup-script"]
    (disk,) = order["disks"]
    assert (disk["autoDelete"], disk["initializeParams"]["sourceImage"].rpartition("/")[2]) == (True, IMAGE)
    assert order["scheduling"] == {"automaticRestart": False}
    assert order["serviceAccounts"] == [], "nothing on it may do anything in the project"
    await there.destroy(node.id)


async def test_a_spare_machine_that_deletes_itself_is_ordered_as_such(gces: Gces, cloud: MakeCloud) -> None:
    there = cloud({"spot": SpotTerms(), "machine_account": "deleter@p.iam.gserviceaccount.com"})
    node = await there.create("vm-1", TAGS, user_data("vm-1"))
    (order,) = gces.orders
    assert order["scheduling"] == {"automaticRestart": False, "preemptible": True, "onHostMaintenance": "TERMINATE"}
    scopes = ["https://www.googleapis.com/auth/compute"]
    assert order["serviceAccounts"] == [{"email": "deleter@p.iam.gserviceaccount.com", "scopes": scopes}]
    await there.destroy(node.id)


async def test_a_zone_that_is_full_and_a_quota_fall_to_the_next(gces: Gces, cloud: MakeCloud) -> None:
    gces.refusals = [FULL, QUOTA, QUOTA_FOUND_LATER]
    there = cloud()
    node = await there.create("vm-1", TAGS, user_data("vm-1"))
    tried = [(order["machineType"].rpartition("/")[2], order["zone"]) for order in gces.orders]
    assert tried == [(size, zone) for size in SIZES for zone in ZONES]
    assert node.size == SIZES[1]
    assert [failure.partition(":")[0] for failure in node.failures] == [
        f"{SIZES[0]} in {ZONES[0]}",
        f"{SIZES[0]} in {ZONES[1]}",
        f"{SIZES[1]} in {ZONES[0]}",
    ]
    await there.destroy(node.id)


@pytest.mark.parametrize(("refusal", "kind"), [(FULL, CapacityError), (QUOTA, QuotaError)], ids=["full", "quota"])
async def test_nothing_to_be_had_is_an_error_that_the_gateway_knows(
    gces: Gces, cloud: MakeCloud, refusal: tuple[int, str, str], kind: type[Exception]
) -> None:
    gces.refusals = [refusal] * 4
    with pytest.raises(kind, match="no VM is available"):
        await cloud().create("vm-1", TAGS, user_data("vm-1"))
    assert gces.there == {}


async def test_a_storm_is_waited_for(gces: Gces, cloud: MakeCloud, clock: LeapingClock) -> None:
    gces.refusals = [(403, "rateLimitExceeded", "Rate Limit Exceeded"), (429, "rateLimitExceeded", "Rate limit")]
    gces.after_s = 50
    there = cloud()
    node = await there.create("vm-1", TAGS, user_data("vm-1"))
    assert len(gces.orders) == 3
    assert sum(clock.leaps_s) >= 2 * 49.9
    assert all("asks for fewer requests" in failure for failure in node.failures)
    await there.destroy(node.id)


async def test_an_order_whose_answer_is_lost_gives_one_machine(gces: Gces, cloud: MakeCloud) -> None:
    gces.lose = True
    there = cloud()
    node = await there.create("vm-1", TAGS, user_data("vm-1"))
    assert [instance["id"] for instance in gces.there.values()] == [node.id]
    await there.destroy(node.id)
    assert gces.there == {}


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"image": "debian-99"}, OrderError, "debian-99"),
        ({"sizes": ("n9-huge",)}, OrderError, "n9-huge"),
        ({"network": "nowhere"}, OrderError, "nowhere"),
        ({"secret": "no key"}, CredentialsError, "cloud.credentials"),
    ],
    ids=["image", "size", "network", "key"],
)
async def test_what_is_the_user_s_fault_is_said(
    gces: Gces, cloud: MakeCloud, wrong: dict[str, Any], kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says):
        await cloud(wrong).create("vm-1", TAGS, user_data("vm-1"))
    assert (gces.there, gces.orders) == ({}, [])


async def test_an_account_that_may_not_is_said_at_once(gces: Gces, cloud: MakeCloud) -> None:
    gces.refusals = [(403, "forbidden", "Required 'compute.instances.create' permission for 'projects/streams-123'")]
    with pytest.raises(CredentialsError, match=r"compute\.instances\.create"):
        await cloud().create("vm-1", TAGS, user_data("vm-1"))
    assert len(gces.orders) == 1


async def test_machines_of_others_are_passed_over(gces: Gces, cloud: MakeCloud) -> None:
    there = cloud()
    node = await there.create("vm-1", TAGS, user_data("vm-1"))
    theirs = {**gces.orders[0], "name": "theirs", "labels": None}
    gces.make(ZONES[1], theirs)
    assert [found.id for found in await there.list({})] == [node.id]
    await there.destroy(node.id)
    assert list(gces.there) == [(ZONES[1], "theirs")]


async def test_one_that_was_stopped_still_costs_and_is_listed_until_it_is_destroyed(
    gces: Gces, cloud: MakeCloud
) -> None:
    there = cloud()
    node = await there.create("vm-1", TAGS, user_data("vm-1"))
    gces.there[ZONES[0], "vm-1"]["status"] = "TERMINATED"
    (found,) = await there.list(TAGS)
    assert (found.id, found.state, found.address) == (node.id, "gone", "")
    await there.destroy(node.id)
    assert gces.there == {}


async def test_a_machine_that_got_no_address_is_told_as_such(gces: Gces, cloud: MakeCloud) -> None:
    gces.gives_addresses = False
    with pytest.raises(BootError, match=r"has no public address after 20 s: .*cloud\.address"):
        await cloud(boot_within_s=20.0).create("vm-1", TAGS, user_data("vm-1"))
    assert gces.there == {}
