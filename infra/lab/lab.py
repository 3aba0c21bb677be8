"""The lab: moto's server as the provider, and a runner that gives each instance a network namespace of its own."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import logging
import os
import secrets
import socket
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import boto3

from infra.lab.machine import Machine
from infra.together import end_tasks
from infra.wan.commands import found, run
from infra.wan.errors import WanError
from infra.wan.namespaces import NamespaceNames, sweep

_LOG: Final = logging.getLogger(__name__)
REGION: Final = "us-east-1"
BUCKET: Final = "spillway-lab"
_LOOK_S: Final = 0.5
_SERVER_S: Final = 60.0
_SERVER_END_S: Final = 10.0


class LabError(Exception):
    """The lab cannot start or run; the message says what to do."""


class Lab:
    """An EC2 and an S3 on this machine; use it as ``async with Lab(folder) as lab``.

    Args:
        folder: for consoles and logs.

    Attributes:
        address: where the lab is reached, from here and from its machines; from the address range for benchmarks.
        endpoint: URL of its EC2 and its S3, while it is up.
        machines: by instance id, including those that ended.

    Raises:
        LabError: not root, or moto is missing.
    """

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            raise LabError("the lab creates network namespaces: run it as root")
        if importlib.util.find_spec("moto") is None:
            raise LabError("the lab needs moto's server: pip install 'moto[ec2,s3,server]'")
        self._folder = folder.absolute()
        self.address = f"198.18.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}"
        self.endpoint = ""
        self.machines: dict[str, Machine] = {}
        self._names = NamespaceNames.new()
        self._server: asyncio.subprocess.Process | None = None
        self._runner: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Lab:
        self._folder.mkdir(parents=True, exist_ok=True)
        await sweep()
        await run("ip", "addr", "add", f"{self.address}/32", "dev", "lo")
        try:
            await self._serve()
            await asyncio.to_thread(self._client("s3").create_bucket, Bucket=BUCKET)
        except BaseException:
            await self._close()
            raise
        self._runner = asyncio.create_task(self._run(), name="lab")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end_tasks(self._runner)
        await self._close()

    async def _close(self) -> None:
        for machine in self.machines.values():
            await machine.end()
        if self._server is not None and self._server.returncode is None:
            self._server.kill()
            async with asyncio.timeout(_SERVER_END_S):
                await self._server.wait()
        await run("ip", "addr", "del", f"{self.address}/32", "dev", "lo")

    async def _serve(self) -> None:
        with socket.socket() as probe:
            probe.bind((self.address, 0))
            port = int(probe.getsockname()[1])
        self.endpoint = f"http://{self.address}:{port}"
        log = self._folder / "moto.log"
        with log.open("wb") as output:
            self._server = await asyncio.create_subprocess_exec(
                *(found("setpriv"), "--pdeathsig", "KILL", "--"),
                *(sys.executable, "-m", "moto.server", "-H", self.address, "-p", str(port)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        ends_s = time.monotonic() + _SERVER_S
        while not await asyncio.to_thread(_accepts, self.address, port):
            if self._server.returncode is not None or time.monotonic() > ends_s:
                raise LabError(f"moto's server did not start: {log.read_text(errors='replace')[-1000:]}")
            await asyncio.sleep(_LOOK_S)

    # ------------------------------------------------------------------------------------------------------- machines

    async def _run(self) -> None:
        """Start a machine for each new instance, and terminate the instance of each machine that ended."""
        while True:
            for instance in await asyncio.to_thread(self._instances):
                await self._follow(instance["InstanceId"], instance["State"]["Name"], instance.get("PrivateIpAddress"))
            await asyncio.sleep(_LOOK_S)

    async def _follow(self, instance_id: str, state: str, address: str | None) -> None:
        machine = self.machines.get(instance_id)
        try:
            if machine is None and state == "running" and address:
                number = len(self.machines)
                names = self._names.of(f"m{number}")
                machine = self.machines[instance_id] = Machine(instance_id, address, self.address, names, self._folder)
                await machine.start(await asyncio.to_thread(self._user_data, instance_id))
                _LOG.info("%s runs at %s; its console is %s", instance_id, address, machine.console)
            elif machine is not None and state == "running" and machine.is_off:
                _LOG.info("%s has shut itself down", instance_id)
                await machine.end()
                await asyncio.to_thread(self._shut_down, instance_id)
            elif machine is not None and state in ("shutting-down", "terminated", "stopping", "stopped"):
                await machine.end()
        except WanError as error:
            _LOG.error("%s: %s", instance_id, error)

    def _instances(self) -> list[dict[str, Any]]:
        pages = self._client("ec2").describe_instances()["Reservations"]
        return [instance for page in pages for instance in page["Instances"]]

    def _user_data(self, instance_id: str) -> str:
        said = self._client("ec2").describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
        return base64.b64decode(said["UserData"].get("Value", "")).decode()

    def _shut_down(self, instance_id: str) -> None:
        """Do what EC2 does when an instance shuts itself down."""
        ec2 = self._client("ec2")
        attribute = "instanceInitiatedShutdownBehavior"
        said = ec2.describe_instance_attribute(InstanceId=instance_id, Attribute=attribute)
        if said["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate":
            ec2.terminate_instances(InstanceIds=[instance_id])
        else:
            ec2.stop_instances(InstanceIds=[instance_id])

    def _client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="lab",
            aws_secret_access_key="lab",  # noqa: S106 -- moto accepts any key
        )


def _accepts(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0
