"""The differences between providers that are data and not code: one profile each.

The figures are what the providers publish; prices of sizes and of traffic are in the user's config.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Provider = Literal["ec2", "openstack", "gce", "digitalocean"]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The properties of a provider.

    Attributes:
        provider: its name in the config.
        title: its name for people.
        billing_period_s: the granularity of the bill.
        billing_minimum_s: the shortest time that is billed.
        shutdown_stops_bill: whether a VM that shuts itself down costs nothing more; otherwise it must be deleted.
        spot: whether it rents spot VMs, which cost less and may be reclaimed at any time.
        usual_boot_s: from the order until the engine host listens, when everything has to be installed.
        boot_within_s: the boot of a VM that does not listen within this time has failed.
        user_data_bytes_max: the size limit of user data.
        tag_key: the pattern of a tag's key.
        tag_value: the pattern of its value.
        tag_rule: the same for people.
    """

    provider: Provider
    title: str
    billing_period_s: float
    billing_minimum_s: float
    shutdown_stops_bill: bool
    spot: bool
    usual_boot_s: float
    boot_within_s: float
    user_data_bytes_max: int
    tag_key: str
    tag_value: str
    tag_rule: str

    def tag_problem(self, key: str, value: str) -> str | None:
        """Return why the provider would refuse this tag, or None."""
        if re.fullmatch(self.tag_key, key) and re.fullmatch(self.tag_value, value):
            return None
        return f'{self.title} does not accept the tag "{key}={value}": {self.tag_rule}'


_EC2: Final = Profile(
    provider="ec2",
    title="EC2",
    billing_period_s=1.0,
    billing_minimum_s=60.0,
    shutdown_stops_bill=True,  # because the order says that a shutdown terminates
    spot=True,
    usual_boot_s=150.0,
    boot_within_s=900.0,
    user_data_bytes_max=16_384,
    tag_key=r"(?!aws:)[\w .:/=+@-]{1,128}",
    tag_value=r"[\w .:/=+@-]{0,256}",
    tag_rule="keys have up to 128 and values up to 256 letters, digits, spaces and . : / = + - @ _",
)
_OPENSTACK: Final = Profile(
    provider="openstack",
    title="OpenStack",
    billing_period_s=3600.0,
    billing_minimum_s=3600.0,
    shutdown_stops_bill=False,
    spot=False,
    usual_boot_s=180.0,
    boot_within_s=900.0,
    user_data_bytes_max=49_150,  # 65,535 of base64
    tag_key=r"[A-Za-z0-9_.: -]{1,255}",
    tag_value=r"(?s).{0,255}",
    tag_rule="keys have up to 255 letters, digits, spaces and - _ : . and values up to 255 characters",
)
_GCE: Final = Profile(
    provider="gce",
    title="GCE",
    billing_period_s=1.0,
    billing_minimum_s=60.0,
    shutdown_stops_bill=False,  # the machine does not cost then, its disk does
    spot=True,
    usual_boot_s=150.0,
    boot_within_s=900.0,
    user_data_bytes_max=262_144,
    tag_key=r"[a-z][a-z0-9_-]{0,62}",
    tag_value=r"[a-z0-9_-]{0,63}",
    tag_rule="keys and values have up to 63 small letters, digits, - and _, and keys begin with a letter",
)
_DIGITALOCEAN: Final = Profile(
    provider="digitalocean",
    title="DigitalOcean",
    billing_period_s=1.0,
    billing_minimum_s=600.0,  # a minute or 0.01 USD, which is ten minutes of what costs 0.06 USD an hour
    shutdown_stops_bill=False,
    spot=False,
    usual_boot_s=180.0,
    boot_within_s=900.0,
    user_data_bytes_max=65_536,
    tag_key=r"[A-Za-z0-9_-]{1,100}",
    tag_value=r"[A-Za-z0-9_-]{0,150}",
    tag_rule="keys have up to 100 and values up to 150 letters, digits, - and _",
)
PROFILES: Final[dict[Provider, Profile]] = {
    "ec2": _EC2,
    "openstack": _OPENSTACK,
    "gce": _GCE,
    "digitalocean": _DIGITALOCEAN,
}
