"""Amazon's EC2 and compatible services, through libcloud."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, cast
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

from infra.clouds.base import OrderError
from infra.clouds.providers.account import Account, VmOrder
from infra.clouds.providers.profiles import PROFILES

_CALL_S: Final = 20.0
_FORM: Final = "application/x-www-form-urlencoded; charset=utf-8"
_FIRST_REGION: Final = "us-east-1"


class _AnyNamespace(EC2Response):
    """Answers of EC2 and compatible services with any XML namespace; otherwise libcloud returns empty lists."""

    def parse_body(self) -> Any:
        root = cast("Any", super()).parse_body()
        for element in root.iter() if hasattr(root, "iter") else ():
            element.tag = f"{{{NAMESPACE}}}{element.tag.rpartition('}')[2]}"
        return root

    def parse_error(self) -> Any:
        # Any namespace. Under load, a proxy in front of the API may answer with a page that is not XML at all.
        said = re.findall(r"<(?:Code|Message)>(.*?)</(?:Code|Message)>", self.body or "", re.DOTALL)
        text = ": ".join(said) or f"{self.error or ''} {self.body or ''}".strip()
        raise exception_from_message(int(self.status), text, self.headers)


class _Ec2Connection(EC2Connection):
    """Sends orders as POST: user data makes a URL too long, and holds a secret that must not appear in logs of URLs."""

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
    """Amazon's EC2 and compatible services."""

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
        driver.region_name = region  # the signature needs the region's own name
        driver.path = url.path or "/"
        return driver

    def create(self, driver: Any, order: VmOrder) -> Machine:
        """See ``Dialect.create``; a shutdown of the VM terminates it."""
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
        """See ``Dialect.tags``; ``Name`` is for the provider's console and not a tag of ours."""
        return {key: value or "" for key, value in machine.extra["tags"].items() if key != "Name"}

    def is_terminated(self, machine: Machine) -> bool:
        """See ``Dialect.is_terminated``; a terminated VM stays listed for an hour."""
        return machine.extra.get("status") in ("shutting-down", "terminated")

    def destroy(self, driver: Any, machine: Machine) -> None:
        """See ``Dialect.destroy``."""
        driver.destroy_node(machine)


class _Ec2Place:
    """The attributes that libcloud reads of an availability zone."""

    def __init__(self, zone: str, region: str) -> None:
        self.availability_zone = ExEC2AvailabilityZone(zone, "available", region)
