"""The config's keys for VMs that are rented from a provider."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from gateway.config.connectors.s3 import BucketConfig
from gateway.config.words.fields import Finding, LongerThanZero, Section
from infra.clouds.providers.profiles import PROFILES

Provider = Literal["process", "ec2", "openstack", "gce", "digitalocean"]
Name = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^\S+$")]
LISTEN_PORT = 7443


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is listed twice; list each one once")
    return names


NameList = Annotated[tuple[Name, ...], AfterValidator(_different)]


class CredentialsConfig(Section):
    """The login at a provider; write secrets as ``${VAR}``.

    Attributes:
        key: access key (ec2), user (openstack), e-mail address of the service account (gce), any name (digitalocean).
        secret: secret key (ec2), password (openstack), path of the service account's JSON key (gce), API token
            (digitalocean).
        token: session token of temporary credentials (ec2).
    """

    key: str = Field(min_length=1, examples=["${AWS_ACCESS_KEY_ID}"])
    secret: SecretStr = Field(min_length=1, examples=["${AWS_SECRET_ACCESS_KEY}"])
    token: SecretStr | None = Field(default=None, examples=["${AWS_SESSION_TOKEN}"])


class SpotConfig(Section):
    """Spot VMs: they cost less, but the provider may reclaim them at any time. Their open runs are then sent home.

    Attributes:
        max_usd_per_hour: ec2: the highest price. Default: the price of an ordinary VM.
    """

    max_usd_per_hour: float | None = Field(default=None, gt=0, examples=[0.04])


class SelfDeleteConfig(Section):
    """The credentials with which a VM deletes itself. They should allow deleting servers and nothing else.

    Attributes:
        id: openstack: of an application credential; gce: e-mail address of the machines' service account;
            digitalocean: any name.
        secret: openstack: its secret; digitalocean: a token; write it as ``${VAR}``; gce: none.
    """

    id: str = Field(min_length=1, examples=["deleter@streams-123.iam.gserviceaccount.com"])
    secret: SecretStr | None = Field(default=None, min_length=1, examples=["${DELETER_SECRET}"])


class RentedConfig(Section):
    """Where VMs are rented, and of which types. The process provider uses none of these keys.

    Attributes:
        credentials: the login of the account.
        region: the provider's region (ec2 and openstack).
        endpoint: URL of an EC2 that is not Amazon's, or of OpenStack's identity service.
        project: the project that pays for the VMs (openstack: its name, gce: its id).
        domain: openstack: the domain of user and project. Default: ``Default``.
        image: the id of a Debian or Ubuntu image, or of a prepared one; with openstack and gce its name.
        sizes: the types of VM, tried in this order.
        zones: tried in this order; without them the provider chooses. digitalocean: its regions.
        network: the network of the VMs (openstack: its id, gce: its name).
        subnet: the subnet of the VMs (ec2: its id, gce: its name).
        security_groups: the security groups of the VMs (ec2: ids if there is a subnet, else names; openstack: names;
            gce: network tags).
        address: which address of a VM the gateway connects to. Default: ``public``.
        port: where engine hosts on VMs listen. Default: 7443.
        boot_within_s: a VM that is not ready after this long is terminated. Default: the provider's (15 minutes).
        spot: ec2 and gce: use spot VMs; ``{}`` sets no highest price.
        self_delete: openstack, gce and digitalocean: a VM that shuts down deletes itself, since it would still be
            billed; without this only the gateway deletes it.
        bundle: where new VMs find Spillway and the user's code; without it the image must contain them.
    """

    credentials: CredentialsConfig | None = None
    region: Name | None = Field(default=None, examples=["eu-west-1"])
    endpoint: str | None = Field(
        default=None, pattern=r"^https?://[^\s/?#]+[^\s?#]*$", examples=["https://keystone.example:5000"]
    )
    project: Name | None = Field(default=None, examples=["streams-123"])
    domain: Name | None = Field(default=None, examples=["Default"])
    image: str | None = Field(default=None, min_length=1, examples=["ami-0123456789abcdef0"])
    sizes: NameList = Field(default=(), examples=[["m7i.large", "m6i.large"]])
    zones: NameList = Field(default=(), examples=[["eu-west-1a", "eu-west-1b"]])
    network: Name | None = Field(default=None, examples=["default"])
    subnet: Name | None = Field(default=None, examples=["subnet-0123456789abcdef0"])
    security_groups: NameList = Field(default=(), examples=[["sg-0123456789abcdef0"]])
    address: Literal["public", "private"] | None = None
    port: int | None = Field(default=None, ge=1, le=65535, examples=[7443])
    boot_within_s: LongerThanZero | None = Field(default=None, alias="boot_within")
    spot: SpotConfig | None = None
    self_delete: SelfDeleteConfig | None = None
    bundle: BucketConfig | None = None


_NEEDED: dict[str, dict[str, str]] = {
    "process": {},
    "ec2": {"region": "such as eu-west-1"},
    "openstack": {"endpoint": "the URL of the identity service", "project": "its name", "region": "its name"},
    "gce": {"project": "its id", "zones": "such as [europe-west1-b]"},
    "digitalocean": {"zones": "regions such as [fra1, ams3]"},
}
_FOR_ALL: dict[str, str] = {
    "credentials": "{key: ${VAR}, secret: ${VAR}}",
    "image": "the id or name of a Debian or Ubuntu image",
    "sizes": "a list such as [m7i.large, m6i.large]",
}
_NOT_FOR: dict[str, tuple[str, ...]] = {
    "process": tuple(RentedConfig.model_fields),
    "ec2": ("project", "domain", "network", "self_delete"),
    "openstack": ("subnet",),
    "gce": ("region", "endpoint", "domain"),
    "digitalocean": (
        "region",
        "endpoint",
        "project",
        "domain",
        "network",
        "subnet",
        "security_groups",
    ),
}


def rented_findings(provider: Provider, rented: RentedConfig) -> list[Finding]:
    """Return the keys that a provider needs and that are missing, and the keys that it does not use."""
    given = {name: value for name in RentedConfig.model_fields if (value := getattr(rented, name)) not in (None, ())}
    needed = _NEEDED[provider] | (_FOR_ALL if provider != "process" else {})
    missing = [
        Finding(key=(name,), what=f"is missing; provider {provider} needs {name}: {example}")
        for name, example in needed.items()
        if name not in given
    ]
    meaningless = [
        Finding(key=(_written(name),), what=f"is not used by provider {provider}; remove it")
        for name in _NOT_FOR[provider]
        if name in given
    ]
    if rented.spot is not None and provider != "process" and not PROFILES[provider].spot:
        what = f"is not used by provider {provider}, which has no spot VMs; remove it"
        meaningless.append(Finding(key=("spot",), what=what))
    if provider == "gce" and rented.spot is not None and rented.spot.max_usd_per_hour is not None:
        what = "is not used by provider gce, whose spot VMs have one price; write spot: {}"
        meaningless.append(Finding(key=("spot", "max_usd_per_hour"), what=what))
    if rented.self_delete is not None:
        missing += _self_delete_findings(provider, rented.self_delete)
    return missing + meaningless


def _self_delete_findings(provider: Provider, by: SelfDeleteConfig) -> list[Finding]:
    secret = ("self_delete", "secret")
    if provider == "gce" and by.secret is not None:
        return [Finding(key=secret, what="is not used by provider gce: id names the account; remove it")]
    if provider in ("openstack", "digitalocean") and by.secret is None:
        return [Finding(key=secret, what=f"is missing; provider {provider} needs it: ${{VAR}}")]
    return []


def _written(name: str) -> str:
    return str(RentedConfig.model_fields[name].alias or name)
