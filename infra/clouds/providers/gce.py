"""Google's Compute Engine through libcloud: its tags are labels, and a VM is named after its host."""

from __future__ import annotations

import os
from typing import Any, Final, cast

from libcloud.common.google import GoogleBaseError
from libcloud.compute.base import Node as Machine
from libcloud.compute.drivers.gce import GCEConnection, GCENodeDriver, GCEResponse

from infra.clouds.providers.account import Account, VmOrder
from infra.clouds.providers.profiles import PROFILES

_CALL_S: Final = 20.0
_SCOPES: Final = ["https://www.googleapis.com/auth/compute"]


class _Answer(GCEResponse):
    """Google's answers. libcloud's errors drop the Retry-After header, so it is kept here."""

    def parse_body(self) -> Any:
        try:
            return cast("Any", super()).parse_body()
        except GoogleBaseError as error:
            cast("Any", error).headers = self.headers
            raise


class _Connection(GCEConnection):
    responseCls = _Answer  # noqa: N815 -- libcloud's


class Driver(GCENodeDriver):
    """libcloud's driver, with errors that carry the Retry-After header of Google's answer."""

    connectionCls = _Connection  # noqa: N815 -- libcloud's


class Gce:
    """Compute Engine."""

    profile = PROFILES["gce"]

    def __init__(self, account: Account) -> None:
        self._account = account

    def connect(self) -> Any:
        """See ``Dialect.connect``."""
        account = self._account
        return cast("Any", Driver)(
            account.key,
            account.secret,
            project=account.project,
            scopes=_SCOPES,
            credential_file=os.devnull,  # or the access token would lie in the home folder
            timeout=_CALL_S,
        )

    def create(self, driver: Any, order: VmOrder) -> Machine:
        """See ``Dialect.create``; the VM is named after its host, as names must be unique there."""
        account = self._account
        spare = {} if account.spot is None else {"ex_preemptible": True, "ex_on_host_maintenance": "TERMINATE"}
        # By default libcloud gives a VM the project's default account, which may read the project's buckets.
        email = account.machine_account
        may = [] if email is None else [{"email": email, "scopes": _SCOPES}]
        return driver.create_node(  # type: ignore[no-any-return]
            order.host,
            order.size,
            account.image,
            location=order.zone,
            ex_network=account.network or "default",
            ex_subnetwork=account.subnet,
            ex_tags=list(account.security_groups),
            ex_labels=dict(order.tags),
            # Google's images do not have cloud-init; their agent runs this script at each start.
            ex_metadata={"startup-script": order.user_data},
            ex_automatic_restart=False,
            ex_service_accounts=may,
            external_ip="ephemeral" if account.address == "public" else None,
            **spare,
        )

    def machines(self, driver: Any, tag: str) -> list[Machine]:
        """See ``Dialect.machines``."""
        return [machine for machine in driver.list_nodes(ex_zone="all") if tag in self.tags(machine)]

    def tags(self, machine: Machine) -> dict[str, str]:
        """See ``Dialect.tags``."""
        return dict(machine.extra["labels"] or {})

    def is_terminated(self, machine: Machine) -> bool:  # noqa: ARG002 -- the protocol's
        """See ``Dialect.is_terminated``: every VM that is listed has a disk, which costs."""
        return False

    def destroy(self, driver: Any, machine: Machine) -> None:
        """See ``Dialect.destroy``; its disk is deleted with it."""
        driver.destroy_node(machine)
