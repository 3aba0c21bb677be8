"""OpenStack through libcloud."""

from __future__ import annotations

from typing import Any, Final

from libcloud.compute.base import Node as Machine
from libcloud.compute.drivers.openstack import OpenStack_2_NodeDriver, OpenStackNetwork, OpenStackSecurityGroup
from libcloud.compute.types import NodeState as MachineState

from infra.clouds.base import OrderError
from infra.clouds.providers.account import Account, VmOrder
from infra.clouds.providers.profiles import PROFILES

_CALL_S: Final = 20.0


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

    def create(self, driver: Any, order: VmOrder) -> Machine:
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

    def is_terminated(self, machine: Machine) -> bool:
        """See ``Dialect.is_terminated``; a server that is only shut down still costs."""
        return bool(machine.state == MachineState.TERMINATED or machine.extra.get("task_state") == "deleting")

    def destroy(self, driver: Any, machine: Machine) -> None:
        """See ``Dialect.destroy``."""
        driver.destroy_node(machine)


def _named(found: list[Any], wanted: str, what: str) -> Any:
    for each in found:
        if wanted in (each.id, each.name):
            return each
    names = ", ".join(sorted(str(each.name) for each in found)[:20])
    raise OrderError(f'OpenStack has no {what} "{wanted}": correct it in cloud; it has {names or "none"}')
