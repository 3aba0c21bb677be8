"""The dialect of each provider: how libcloud is called to order a VM with its tags and user data.

Every function here blocks and raises libcloud's errors.
"""

from __future__ import annotations

from collections.abc import Callable

from infra.clouds.providers.account import Account, Dialect
from infra.clouds.providers.droplets import DigitalOcean
from infra.clouds.providers.ec2 import Ec2
from infra.clouds.providers.gce import Gce
from infra.clouds.providers.openstack import OpenStack
from infra.clouds.providers.profiles import Provider


def dialect_for(account: Account) -> Dialect:
    """Return the dialect of the account's provider."""
    dialects: dict[Provider, Callable[[Account], Dialect]] = {
        "ec2": Ec2,
        "openstack": OpenStack,
        "gce": Gce,
        "digitalocean": DigitalOcean,
    }
    return dialects[account.provider](account)
