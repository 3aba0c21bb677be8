"""An account, an order and the dialect of a provider, in terms that all providers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from libcloud.compute.base import Node as Machine

from infra.clouds.providers.profiles import Profile, Provider


@dataclass(frozen=True)
class SpotTerms:
    """Spot VMs are wanted, which the provider may reclaim at any time.

    Attributes:
        max_usd_per_hour: EC2 only: the highest price to pay; None: up to the price of an ordinary VM.
    """

    max_usd_per_hour: float | None = None


@dataclass(frozen=True, kw_only=True)
class Account:
    """Where VMs are rented, with which credentials, and of which types.

    Attributes:
        provider: the cloud provider.
        key: access key, user, or a service account's e-mail address; DigitalOcean needs none.
        secret: secret key, password, a service account's private key (PEM, or the path of its JSON file), or API token.
        token: session token of temporary credentials; EC2 only.
        region: EC2 and OpenStack.
        endpoint: URL of the API: of an EC2 that is not Amazon's, of OpenStack's identity service.
        project: GCE and OpenStack.
        domain: of the user and project; OpenStack only.
        image: id, or the name where the provider has names.
        sizes: tried in this order.
        zones: tried in this order; empty: the provider chooses (not with GCE); DigitalOcean: its regions.
        network: id of an OpenStack network, name of a GCE network.
        subnet: id of an EC2 subnet, name of a GCE subnetwork.
        security_groups: ids with an EC2 subnet, else names; network tags with GCE.
        address: which of a VM's addresses the gateway connects to.
        port: where engine hosts listen.
        spot: None: ordinary VMs; EC2 and GCE have spot VMs.
        machine_account: GCE only: e-mail address of the VMs' service account; None: they have no account.
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
    spot: SpotTerms | None = None
    machine_account: str | None = None


@dataclass(frozen=True, kw_only=True)
class VmOrder:
    """A VM that is wanted.

    Attributes:
        name: for people.
        host: the name in its certificate; unique.
        tags: set by the very call that creates it.
        user_data: the script that it runs first.
        size: the machine type.
        zone: None: the provider chooses.
    """

    name: str
    host: str
    tags: Mapping[str, str]
    user_data: str
    size: str
    zone: str | None = None


class Dialect(Protocol):
    """How one provider is called. ``driver`` is what ``connect`` returned; only one thread at a time uses it."""

    profile: Profile

    def connect(self) -> Any:
        """Return a libcloud driver; may ask the provider to check the credentials."""
        ...

    def create(self, driver: Any, order: VmOrder) -> Machine:
        """Order a VM with its tags and user data."""
        ...

    def machines(self, driver: Any, tag: str) -> list[Machine]:
        """Return the VMs that have this tag, with any value."""
        ...

    def tags(self, machine: Machine) -> dict[str, str]:
        """Return a VM's tags."""
        ...

    def is_terminated(self, machine: Machine) -> bool:
        """Return whether the VM is terminated, or is being terminated, and costs nothing any more."""
        ...

    def destroy(self, driver: Any, machine: Machine) -> None:
        """Terminate a VM."""
        ...
