"""Clients of moto's EC2 server, for tests of the adapter; its instances run nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import boto3
import msgspec

from infra.clock import Clock
from infra.clouds.providers.account import Account
from infra.clouds.rented import RentedCloud
from infra.link.keys.trust import UserData
from tests.connectors.s3_server import S3Server

PORT = 7443
IMAGE = "ami-12c6146b"
ACCOUNT = Account(
    provider="ec2",
    key="test",
    secret="test",
    region="eu-west-1",
    image=IMAGE,
    sizes=("m5.large", "m5.xlarge"),
    port=PORT,
)


async def always(address: str, port: int, host: str) -> bool:
    return bool(address) and port == PORT


async def never(address: str, port: int, host: str) -> bool:
    return False


async def as_json(told: UserData) -> str:
    return msgspec.json.encode(told).decode()


class Ec2Lab:
    """One moto server; ``instances`` reads it without the adapter."""

    def __init__(self, server: S3Server, clock: Clock) -> None:
        self.server = server
        self._clock = clock

    def cloud(self, *, endpoint: str | None = None, account: dict[str, Any] | None = None, **given: Any) -> RentedCloud:
        there = dataclasses.replace(ACCOUNT, endpoint=endpoint or self.server.endpoint, **(account or {}))
        boot_script: Callable[[UserData], Any] = given.pop("boot_script", as_json)
        return RentedCloud(there, boot_script, self._clock, **{"is_host": always, **given})

    def client(self, region: str = "eu-west-1") -> Any:
        return boto3.client(
            "ec2",
            endpoint_url=self.server.endpoint,
            region_name=region,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def instances(self, *states: str) -> list[dict[str, Any]]:
        filters = [{"Name": "instance-state-name", "Values": list(states or ("pending", "running", "stopped"))}]
        pages = self.client().describe_instances(Filters=filters)["Reservations"]
        return [instance for page in pages for instance in page["Instances"]]

    def user_data(self, node_id: str) -> str:
        import base64

        answer = self.client().describe_instance_attribute(InstanceId=node_id, Attribute="userData")
        return base64.b64decode(answer["UserData"]["Value"]).decode()
