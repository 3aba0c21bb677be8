"""How each provider is asked through libcloud: what it wants to hear for a machine, its tags and its user data.

Everything here blocks, and raises what libcloud raises.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, cast
from urllib.parse import urlencode, urlsplit

from libcloud.common.exceptions import exception_from_message
from libcloud.compute.base import Node as Machine
from libcloud.compute.base import NodeImage, NodeSize
from libcloud.compute.drivers.ec2 import (
    NAMESPACE,
    EC2Connection,
    EC2NetworkSubnet,
    EC2NodeDriver,
    EC2Response,
    ExEC2AvailabilityZone,
)
from libcloud.compute.drivers.openstack import OpenStack_2_NodeDriver, OpenStackNetwork, OpenStackSecurityGroup
from libcloud.compute.types import NodeState as MachineState

from infra.clouds.base import OrderError
from infra.clouds.profiles import PROFILES, Profile, Provider

_CALL_S: Final = 20.0
_FORM: Final = "application/x-www-form-urlencoded; charset=utf-8"
_FIRST_REGION: Final = "us-east-1"


@dataclass(frozen=True)
class Spot:
    """Spare machines are asked for, which the provider takes back when it likes.

    Attributes:
        max_usd_per_hour: EC2 only: no more than this is paid; None: no more than an ordinary machine costs.
    """

    max_usd_per_hour: float | None = None


@dataclass(frozen=True, kw_only=True)
class Account:
    """Where machines are rented, by whom, and of what kind.

    Attributes:
        provider: whose dialect is spoken.
        key: access key, user, or a service account's e-mail address; DigitalOcean wants none.
        secret: secret key, password, a service account's private key (PEM, or the path of its JSON file), or API token.
        token: session token of temporary credentials; EC2 only.
        region: EC2 and OpenStack.
        endpoint: URL of the API: of an EC2 that is not Amazon's, of OpenStack's identity service.
        project: GCE and OpenStack.
        domain: of the user and project; OpenStack only.
        image: id, or the name where the provider has names.
        sizes: to be tried in this order.
        zones: to be tried in this order; empty leaves it to the provider, except with GCE; DigitalOcean: its regions.
        network: id of an OpenStack network, name of a GCE network.
        subnet: id of an EC2 subnet, name of a GCE subnetwork.
        security_groups: ids with an EC2 subnet, else names; network tags with GCE.
        address: which of a machine's addresses the gateway dials.
        port: where engine hosts listen.
        spot: None: ordinary machines; EC2 and GCE have spare ones.
        machine_account: GCE only: e-mail address of the service account that machines have; None: they have none.
    """

    provider: Provider
    key: str
    secret: str
    token: str | None = None
    region: str | None = None
    endpoint: str | None = None
    project: str | None = None
    domain: str = "Default"
    image: str
    sizes: tuple[str, ...]
    zones: tuple[str, ...] = ()
    network: str | None = None
    subnet: str | None = None
    security_groups: tuple[str, ...] = ()
    address: Literal["public", "private"] = "public"
    port: int
    spot: Spot | None = None
    machine_account: str | None = None


@dataclass(frozen=True, kw_only=True)
class Order:
    """A machine that is wanted.

    Attributes:
        name: for people.
        host: the name in its certificate; no two machines have the same.
        tags: set by the very call that creates it.
        user_data: what it does first.
        size: of the machine.
        zone: None leaves it to the provider.
    """

    name: str
    host: str
    tags: Mapping[str, str]
    user_data: str
    size: str
    zone: str | None = None


class Dialect(Protocol):
    """One provider's way. ``driver`` is what ``connect`` returned; one thread at a time uses it."""

    profile: Profile

    def connect(self) -> Any:
        """Return a driver of libcloud; may ask the provider who we are."""
        ...

    def create(self, driver: Any, order: Order) -> Machine:
        """Order a machine with its tags and user data."""
        ...

    def machines(self, driver: Any, tag: str) -> list[Machine]:
        """Return the machines that have this tag, whatever its value."""
        ...

    def tags(self, machine: Machine) -> dict[str, str]:
        """Return a machine's tags."""
        ...

    def given_back(self, machine: Machine) -> bool:
        """Return whether it costs nothing any more and is on its way out."""
        ...

    def destroy(self, driver: Any, machine: Machine) -> None:
        """Give it back."""
        ...


def dialect_for(account: Account) -> Dialect:
    """Return the dialect that the account's provider understands."""
    from infra.clouds.droplets import DigitalOcean  # these need what is defined here
    from infra.clouds.gce import Gce

    dialects: dict[Provider, Callable[[Account], Dialect]] = {
        "ec2": Ec2,
        "openstack": OpenStack,
        "gce": Gce,
        "digitalocean": DigitalOcean,
    }
    return dialects[account.provider](account)


class _AnyNamespace(EC2Response):
    """Answers of EC2 and of what speaks like it, whatever XML namespace they use; else lists are silently empty."""

    def parse_body(self) -> Any:
        root = cast("Any", super()).parse_body()
        for element in root.iter() if hasattr(root, "iter") else ():
            element.tag = f"{{{NAMESPACE}}}{element.tag.rpartition('}')[2]}"
        return root

    def parse_error(self) -> Any:
        # Whatever the namespace; and a gateway before the API answers a storm with a page that is no XML at all.
        said = re.findall(r"<(?:Code|Message)>(.*?)</(?:Code|Message)>", self.body or "", re.DOTALL)
        text = ": ".join(said) or f"{self.error or ''} {self.body or ''}".strip()
        raise exception_from_message(int(self.status), text, self.headers)


class _Ec2Connection(EC2Connection):
    """Sends orders as POST: user data makes a URL too long, and holds a secret that logs of URLs should not have."""

    responseCls = _AnyNamespace  # noqa: N815 -- libcloud's name

    def request(self, action: Any, params: Any = None, *more: Any, **given: Any) -> Any:
        ask = cast("Any", super()).request
        if (params or {}).get("Action") == "RunInstances":
            body = urlencode({**params, "Version": self.version})
            return ask(action, data=body, headers={"Content-Type": _FORM}, method="POST")
        return ask(action, params, *more, **given)

    def add_default_params(self, params: Any) -> Any:
        return params if self.method == "POST" else cast("Any", super()).add_default_params(params)


class _Ec2Driver(EC2NodeDriver):
    connectionCls = _Ec2Connection  # noqa: N815 -- libcloud's name


class Ec2:
    """Amazon's EC2 and what speaks like it."""

    profile = PROFILES["ec2"]

    def __init__(self, account: Account) -> None:
        self._account = account

    def connect(self) -> Any:
        """See ``Dialect.connect``."""
        account = self._account
        region = account.region or _FIRST_REGION
        known = region in EC2NodeDriver.list_regions()
        if not known and account.endpoint is None:
            raise OrderError(f'EC2 has no region "{region}" that is known here: correct it, or give cloud.endpoint')
        url = urlsplit(account.endpoint or "")
        driver = cast("Any", _Ec2Driver)(
            account.key,
            account.secret,
            token=account.token,
            region=region if known else _FIRST_REGION,
            signature_version="4",
            secure=url.scheme != "http",
            host=url.hostname,
            port=url.port,
            timeout=_CALL_S,
        )
        driver.region_name = region  # the signature is over the region's own name
        driver.path = url.path or "/"
        return driver

    def create(self, driver: Any, order: Order) -> Machine:
        """See ``Dialect.create``; the machine ends for good when it shuts down."""
        account = self._account
        groups = list(account.security_groups)
        subnet = None if account.subnet is None else EC2NetworkSubnet(account.subnet, account.subnet, "available")
        where = {} if order.zone is None else {"location": _Ec2Place(order.zone, driver.region_name)}
        return driver.create_node(  # type: ignore[no-any-return]
            order.name,
            NodeSize(order.size, order.size, 0, 0, 0, 0, driver),
            NodeImage(account.image, account.image, driver),
            ex_userdata=order.user_data,
            ex_metadata=dict(order.tags),
            ex_clienttoken=hashlib.sha256(f"{order.host} {order.size} {order.zone}".encode()).hexdigest(),
            ex_terminate_on_shutdown=True,
            ex_spot=account.spot is not None,
            ex_spot_max_price=None if account.spot is None else account.spot.max_usd_per_hour,
            ex_subnet=subnet,
            ex_assign_public_ip=subnet is not None and account.address == "public",
            **({"ex_security_group_ids": groups} if subnet is not None else {"ex_security_groups": groups}),
            **where,
        )

    def machines(self, driver: Any, tag: str) -> list[Machine]:
        """See ``Dialect.machines``."""
        return driver.list_nodes(ex_filters={"tag-key": tag})  # type: ignore[no-any-return]

    def tags(self, machine: Machine) -> dict[str, str]:
        """See ``Dialect.tags``; ``Name`` is what the console shows, not a tag of ours."""
        return {key: value or "" for key, value in machine.extra["tags"].items() if key != "Name"}

    def given_back(self, machine: Machine) -> bool:
        """See ``Dialect.given_back``; a machine that has ended stays listed for an hour."""
        return machine.extra.get("status") in ("shutting-down", "terminated")

    def destroy(self, driver: Any, machine: Machine) -> None:
        """See ``Dialect.destroy``."""
        driver.destroy_node(machine)


class _Ec2Place:
    """What libcloud wants to know of an availability zone."""

    def __init__(self, zone: str, region: str) -> None:
        self.availability_zone = ExEC2AvailabilityZone(zone, "available", region)


class OpenStack:
    """OpenStack with an identity service of version 3."""

    profile = PROFILES["openstack"]

    def __init__(self, account: Account) -> None:
        self._account = account

    def connect(self) -> Any:
        """See ``Dialect.connect``."""
        account = self._account
        driver = OpenStack_2_NodeDriver(
            account.key,
            account.secret,
            ex_force_auth_url=account.endpoint,
            ex_force_auth_version="3.x_password",
            ex_force_service_region=account.region,
            ex_tenant_name=account.project,
            ex_domain_name=account.domain,
            timeout=_CALL_S,
        )
        driver.connection.timeout = _CALL_S
        return driver

    def create(self, driver: Any, order: Order) -> Machine:
        """See ``Dialect.create``."""
        account = self._account
        networks = [OpenStackNetwork(account.network, account.network, None, driver)] if account.network else []
        groups = [OpenStackSecurityGroup(name, None, name, "", driver) for name in account.security_groups]
        return driver.create_node(  # type: ignore[no-any-return]
            order.name,
            _named(driver.list_sizes(), order.size, "size"),
            _named(driver.list_images(), account.image, "image"),
            ex_userdata=order.user_data,
            ex_metadata=dict(order.tags),
            ex_security_groups=groups,
            networks=networks,
            ex_availability_zone=order.zone,
        )

    def machines(self, driver: Any, tag: str) -> list[Machine]:
        """See ``Dialect.machines``."""
        return [machine for machine in driver.list_nodes() if tag in self.tags(machine)]

    def tags(self, machine: Machine) -> dict[str, str]:
        """See ``Dialect.tags``."""
        return dict(machine.extra["metadata"] or {})

    def given_back(self, machine: Machine) -> bool:
        """See ``Dialect.given_back``; a server that is only shut down still costs."""
        return bool(machine.state == MachineState.TERMINATED or machine.extra.get("task_state") == "deleting")

    def destroy(self, driver: Any, machine: Machine) -> None:
        """See ``Dialect.destroy``."""
        driver.destroy_node(machine)


def _named(found: list[Any], wanted: str, what: str) -> Any:
    for each in found:
        if wanted in (each.id, each.name):
            return each
    names = ", ".join(sorted(str(each.name) for each in found)[:20])
    raise OrderError(f'OpenStack has no {what} "{wanted}": correct it in cloud; there are {names or "none"}')
