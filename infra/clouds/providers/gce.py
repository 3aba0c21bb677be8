"""Google's Compute Engine as libcloud asks it: its tags are labels, and a machine is known by its host's name."""

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
    """Google's answers; libcloud's errors of them forget how long it wants to be left alone."""

    def parse_body(self) -> Any:
        try:
            return cast("Any", super()).parse_body()
        except GoogleBaseError as error:
            cast("Any", error).headers = self.headers
            raise


class _Connection(GCEConnection):
    responseCls = _Answer  # noqa: N815 -- libcloud's


class Driver(GCENodeDriver):
    """libcloud's, whose errors carry what Google says of when to come back."""

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
        """See ``Dialect.create``; its name there is the host's, as it has to be unique."""
        account = self._account
        spare = {} if account.spot is None else {"ex_preemptible": True, "ex_on_host_maintenance": "TERMINATE"}
        # Told nothing, libcloud gives a machine the project's default account, which may read its buckets.
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
            # Google's images know no cloud-init; their agent runs this at each start, and there is only one.
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

    def given_back(self, machine: Machine) -> bool:  # noqa: ARG002 -- the protocol's
        """See ``Dialect.given_back``: a machine that is listed has a disk, which costs."""
        return False

    def destroy(self, driver: Any, machine: Machine) -> None:
        """See ``Dialect.destroy``; its disk goes with it."""
        driver.destroy_node(machine)
