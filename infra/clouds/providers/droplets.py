"""DigitalOcean through libcloud: its tags are single words, so a tag of ours is written ``key:value``.

It has no token that makes a repeated order harmless. After a lost answer the VM is found by its tags.
"""

from __future__ import annotations

from typing import Any, Final, cast
from urllib.parse import urlsplit

from libcloud.compute.base import Node as Machine
from libcloud.compute.base import NodeImage, NodeLocation, NodeSize
from libcloud.compute.drivers.digitalocean import DigitalOceanNodeDriver
from libcloud.compute.types import NodeState as MachineState

from infra.clouds.providers.account import Account, VmOrder
from infra.clouds.providers.profiles import PROFILES

_CALL_S: Final = 20.0


class DigitalOcean:
    """Droplets."""

    profile = PROFILES["digitalocean"]

    def __init__(self, account: Account) -> None:
        self._account = account

    def connect(self) -> Any:
        """See ``Dialect.connect``."""
        driver = cast("Any", DigitalOceanNodeDriver(self._account.secret))
        url = urlsplit(self._account.endpoint or "")
        # The driver ignores connection arguments that are passed to it.
        connection = driver.connectionCls(
            self._account.secret, url.scheme != "http", url.hostname, url.port, timeout=_CALL_S
        )
        connection.driver = driver
        connection.connect()
        driver.connection = connection
        return driver

    def create(self, driver: Any, order: VmOrder) -> Machine:
        """See ``Dialect.create``."""
        region = order.zone or ""
        return driver.create_node(  # type: ignore[no-any-return]
            order.host,
            NodeSize(order.size, order.size, 0, 0, 0, 0, driver),
            NodeImage(self._account.image, self._account.image, driver),
            NodeLocation(region, region, "", driver),
            ex_create_attr={"tags": [f"{key}:{value}" for key, value in order.tags.items()]},
            ex_user_data=order.user_data,
        )

    def machines(self, driver: Any, tag: str) -> list[Machine]:
        """See ``Dialect.machines``."""
        return [machine for machine in driver.list_nodes() if tag in self.tags(machine)]

    def tags(self, machine: Machine) -> dict[str, str]:
        """See ``Dialect.tags``; tags without a colon are not ours and are left out."""
        parted = (word.partition(":") for word in machine.extra.get("tags") or ())
        return {key: value for key, colon, value in parted if colon}

    def is_terminated(self, machine: Machine) -> bool:
        """See ``Dialect.is_terminated``; a droplet that is only switched off still costs."""
        return bool(machine.state == MachineState.TERMINATED)

    def destroy(self, driver: Any, machine: Machine) -> None:
        """See ``Dialect.destroy``."""
        driver.destroy_node(machine)
