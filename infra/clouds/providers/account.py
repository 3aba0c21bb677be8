"""What an account, an order and a provider's dialect are, whoever the provider is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from libcloud.compute.base import Node as Machine

from infra.clouds.providers.profiles import Profile, Provider


@dataclass(frozen=True)
class SpotTerms:
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
    spot: SpotTerms | None = None
    machine_account: str | None = None


@dataclass(frozen=True, kw_only=True)
class VmOrder:
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

    def create(self, driver: Any, order: VmOrder) -> Machine:
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
