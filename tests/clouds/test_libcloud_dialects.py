"""The arguments that the dialects pass to libcloud, checked without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from libcloud.compute.base import Node as Machine
from libcloud.compute.types import NodeState

from infra.clouds.base import OrderError
from infra.clouds.providers.account import Account, SpotTerms, VmOrder
from infra.clouds.providers.dialects import dialect_for
from infra.clouds.providers.ec2 import Ec2
from infra.clouds.providers.gce import Gce
from infra.clouds.providers.openstack import OpenStack
from infra.clouds.providers.profiles import PROFILES

ORDER = VmOrder(
    name="vm-1", host="vm-1-ab", tags={"spillway-vm-host": "vm-1-ab"}, user_data="#!/bin/sh", size="m1.small"
)


def account(provider: Any, **changes: Any) -> Account:
    given = {"key": "me", "secret": "s", "image": "debian-12", "sizes": ("m1.small",), "port": 7443, "project": "p"}
    return Account(provider=provider, **{**given, **changes})


class Recording:
    """A driver that records how it is called."""

    def __init__(self, machines: list[Machine] | None = None) -> None:
        self.created: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self.destroyed: list[Any] = []
        self.listed_with: dict[str, Any] = {}
        self._machines = machines or []

    def create_node(self, *positional: Any, **named: Any) -> str:
        self.created = (positional, named)
        return "made"

    def list_nodes(self, **named: Any) -> list[Machine]:
        self.listed_with = named
        return self._machines

    def list_sizes(self) -> list[Any]:
        return [SimpleNamespace(id="7", name="m1.small"), SimpleNamespace(id="8", name="m1.large")]

    def list_images(self) -> list[Any]:
        return [SimpleNamespace(id="uuid-1", name="debian-12")]

    def destroy_node(self, machine: Any) -> None:
        self.destroyed.append(machine)


def machine(state: NodeState = NodeState.RUNNING, **extra: Any) -> Machine:
    return Machine("id-1", "vm-1", state, ["1.2.3.4"], ["10.0.0.4"], Recording(), extra=extra)


def test_openstack_gets_tags_and_user_data_in_the_order_itself() -> None:
    driver = Recording()
    there = account("openstack", network="net-1", security_groups=("spillway",))
    OpenStack(there).create(driver, ORDER)
    assert driver.created is not None
    (name, size, image), named = driver.created
    assert (name, size.id, image.id) == ("vm-1", "7", "uuid-1")
    assert named["ex_metadata"] == {"spillway-vm-host": "vm-1-ab"}
    assert named["ex_userdata"] == "#!/bin/sh"
    assert [network.id for network in named["networks"]] == ["net-1"]
    assert [group.name for group in named["ex_security_groups"]] == ["spillway"]


def test_openstack_names_what_it_has_when_a_name_is_wrong() -> None:
    with pytest.raises(OrderError, match=r'no image "other".*debian-12'):
        OpenStack(account("openstack", image="other")).create(Recording(), ORDER)


def test_openstack_lists_by_metadata_and_a_server_that_is_shut_down_still_costs() -> None:
    ours = machine(metadata={"spillway-vm-host": "a"})
    dialect = OpenStack(account("openstack"))
    assert dialect.machines(Recording([ours, machine(metadata={})]), "spillway-vm-host") == [ours]
    assert not dialect.is_terminated(machine(NodeState.STOPPED, metadata={}))
    assert dialect.is_terminated(machine(metadata={}, task_state="deleting"))
    assert not PROFILES["openstack"].shutdown_stops_bill


def test_openstack_speaks_version_3_of_identity() -> None:
    driver = OpenStack(account("openstack", endpoint="https://keystone:5000", region="R1", domain="D")).connect()
    wants = driver.openstack_connection_kwargs()
    assert wants["ex_force_auth_url"] == "https://keystone:5000"
    assert wants["ex_force_auth_version"] == "3.x_password"
    assert (wants["ex_force_service_region"], wants["ex_tenant_name"], wants["ex_domain_name"]) == ("R1", "p", "D")
    assert driver.connection.timeout == pytest.approx(20.0)


def test_gce_gets_labels_and_a_start_script_under_the_host_s_name() -> None:
    driver = Recording()
    there = account("gce", zones=("europe-west1-b",), address="private", security_groups=("worker",))
    Gce(there).create(driver, ORDER)
    assert driver.created is not None
    positional, named = driver.created
    assert positional == ("vm-1-ab", "m1.small", "debian-12")
    assert named["ex_labels"] == {"spillway-vm-host": "vm-1-ab"}
    assert named["ex_metadata"] == {"startup-script": "#!/bin/sh"}
    assert named["ex_automatic_restart"] is False
    assert named["external_ip"] is None
    assert named["ex_tags"] == ["worker"]
    assert named["ex_service_accounts"] == [], "nothing on it may do anything in the project"


def test_a_gce_machine_that_deletes_itself_has_the_account_that_may() -> None:
    driver = Recording()
    email = "vm@p.iam.gserviceaccount.com"
    Gce(account("gce", zones=("europe-west1-b",), machine_account=email)).create(driver, ORDER)
    assert driver.created is not None
    scopes = ["https://www.googleapis.com/auth/compute"]
    assert driver.created[1]["ex_service_accounts"] == [{"email": email, "scopes": scopes}]


def test_gce_gets_spare_machines_only_when_they_are_wanted() -> None:
    for spot, wanted in ((None, None), (SpotTerms(), True)):
        driver = Recording()
        Gce(account("gce", zones=("europe-west1-b",), spot=spot)).create(driver, ORDER)
        assert driver.created is not None
        assert driver.created[1].get("ex_preemptible") is wanted
        assert driver.created[1].get("ex_on_host_maintenance") == ("TERMINATE" if wanted else None)


def test_gce_lists_all_zones_by_label_and_a_stopped_machine_still_costs() -> None:
    ours = machine(labels={"spillway-vm-host": "a"})
    driver = Recording([ours, machine(labels=None)])
    dialect = Gce(account("gce"))
    assert dialect.machines(driver, "spillway-vm-host") == [ours]
    assert driver.listed_with == {"ex_zone": "all"}
    assert not dialect.is_terminated(machine(NodeState.STOPPED, labels={}))


@pytest.mark.parametrize("provider", ["ec2", "openstack", "gce"])
def test_each_provider_has_a_dialect_and_ends_the_machine_it_is_told(provider: Any) -> None:
    driver = Recording()
    ended = machine()
    dialect = dialect_for(account(provider))
    dialect.destroy(driver, ended)
    assert driver.destroyed == [ended]
    assert dialect.profile.provider == provider


def test_the_tags_of_ours_suit_every_provider() -> None:
    own = {"spillway-vm-host": "vm-1-0a", "spillway-vm-ordered-ms": "1790000000000", "spillway-gateway": "0f" * 20}
    for profile in PROFILES.values():
        assert [profile.tag_problem(key, value) for key, value in own.items()] == [None] * 3
    assert PROFILES["gce"].tag_problem("Name", "X") is not None


def test_ec2_signs_with_the_name_of_a_region_that_amazon_does_not_have() -> None:
    driver = Ec2(account("ec2", region="here", endpoint="https://cloud.example:8773/services/compute")).connect()
    assert (driver.region_name, driver.path, driver.signature_version) == ("here", "/services/compute", "4")
    assert (driver.connection.host, driver.connection.port) == ("cloud.example", 8773)
    with pytest.raises(OrderError, match='no region "here"'):
        Ec2(account("ec2", region="here")).connect()


def test_ec2_takes_security_groups_by_id_only_with_a_subnet() -> None:
    for subnet, name in (("subnet-1", "ex_security_group_ids"), (None, "ex_security_groups")):
        driver = Recording()
        driver.region_name = "eu-west-1"  # type: ignore[attr-defined]
        Ec2(account("ec2", subnet=subnet, security_groups=("sg-1",))).create(driver, ORDER)
        assert driver.created is not None
        assert driver.created[1][name] == ["sg-1"]
        assert driver.created[1]["ex_terminate_on_shutdown"] is True
        assert driver.created[1]["ex_assign_public_ip"] is (subnet is not None)
