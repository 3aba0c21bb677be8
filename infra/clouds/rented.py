"""VMs rented through apache-libcloud: one adapter for all providers.

Besides the gateway's tags a VM carries our own, all set by the call that creates it: its host's name, its port, its
name, its size, and the time of the order in milliseconds. After a lost answer the VM is found by its host's name. So a
VM can be terminated from the moment it can cost money. Only VMs with these tags are listed or terminated.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID
from libcloud.compute.base import Node as Machine
from libcloud.compute.types import NodeState as MachineState

from infra.clock import Clock
from infra.clouds.base import (
    BootError,
    CapacityError,
    Cloud,
    CloudError,
    GoneError,
    Node,
    NodeState,
    OrderError,
    UnavailableError,
)
from infra.clouds.providers.account import Account, VmOrder
from infra.clouds.providers.calls import Calls
from infra.clouds.providers.dialects import dialect_for
from infra.clouds.providers.errors import our_errors, refusal_in
from infra.clouds.providers.kinds import Kind, Kinds
from infra.link.keys.trust import UserData
from infra.together import wait_out

_LOG: Final = logging.getLogger(__name__)
HOST_TAG: Final = "spillway-vm-host"
PORT_TAG: Final = "spillway-vm-port"
NAME_TAG: Final = "spillway-vm-name"
ORDERED_TAG: Final = "spillway-vm-ordered-ms"
SIZE_TAG: Final = "spillway-vm-size"
_OURS: Final = (HOST_TAG, PORT_TAG, NAME_TAG, ORDERED_TAG, SIZE_TAG)
_CALL_S: Final = 90.0  # libcloud waits for some operations of GCE itself
_POLL_S: Final = 3.0
_KNOCK_S: Final = 5.0
_END_S: Final = 300.0
_QUIET_S: Final = 120.0

IsHost = Callable[[str, int, str], Awaitable[bool]]
Failures = list[str]
"""The failures of an order so far."""


async def is_host(address: str, port: int, host: str) -> bool:
    """Return whether the server there claims to be the engine host; enrolment proves later that it is.

    A successful connection alone proves little, even with TLS: firewalls and proxies on the path accept connections for
    VMs that have not booted yet.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(_KNOCK_S):
            _, writer = await asyncio.open_connection(address, port, ssl=context)
    except (OSError, TimeoutError):
        return False
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return shown is not None and _name_in(shown) == host


def _name_in(certificate_der: bytes) -> str:
    try:
        names = x509.load_der_x509_certificate(certificate_der).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        return ""
    return str(names[0].value) if names else ""


class RentedCloud(Cloud):
    """A provider behind libcloud.

    Args:
        account: where VMs are rented, with which credentials, and of which types.
        boot_script: turns the ``UserData`` of an engine host into a VM's user data.
        clock: measures deadlines and pauses.
        boot_within_s: the boot of a VM that does not listen within this time has failed; None: the provider's default.
        is_host: returns whether an engine host listens at an address.
        call_s: the deadline of a call to the provider.
        memory: the file that records unusable machine types; None: they are forgotten after a restart.

    Attributes:
        kinds: the machine types, the best first.
        kind_of: the machine type of each VM that was ordered, by its id.
    """

    def __init__(
        self,
        account: Account,
        boot_script: Callable[[UserData], Awaitable[str]],
        clock: Clock,
        *,
        boot_within_s: float | None = None,
        is_host: IsHost = is_host,
        call_s: float = _CALL_S,
        memory: Path | None = None,
    ) -> None:
        self._account = account
        self._dialect = dialect_for(account)
        self.profile = self._dialect.profile
        self._where = " ".join(filter(None, (self.profile.title, account.region, account.endpoint)))
        self._boot_script = boot_script
        self._clock = clock
        self._boot_within_s = self.profile.boot_within_s if boot_within_s is None else boot_within_s
        self._is_host = is_host
        self._calls = Calls(self._dialect.connect, self._where, clock, call_s)
        # A provider's list may lag behind the VMs that it has just created.
        self._ordered: dict[str, Machine] = {}
        # Hosts whose VM may exist: after a lost answer it may, after a refusal it does not.
        self._in_doubt: set[str] = set()
        self._terminating: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.kinds = Kinds(account, memory)
        self.kind_of: dict[str, Kind] = {}  # by the id of the machine that was ordered

    async def create(self, name: str, tags: Mapping[str, str], user_data: str) -> Node:
        """Rent a VM of the first size and zone that is available; see ``Cloud.create``."""
        host_data = msgspec.structs.replace(
            UserData.from_json(user_data),
            listen_host="0.0.0.0",  # noqa: S104 -- every client has to authenticate itself
            listen_port=self._account.port,
        )
        all_tags = {**tags, **self._own_tags(name, host_data.host)}
        for size in self._account.sizes:
            self._check_tags({**all_tags, SIZE_TAG: size})
        script = await self._boot_script(host_data)
        size_bytes = len(script.encode())
        if size_bytes > self.profile.user_data_bytes_max:
            most_bytes = self.profile.user_data_bytes_max
            raise OrderError(f"{name}: its user data has {size_bytes} bytes and {self._where} accepts {most_bytes}")
        failures: Failures = []
        try:
            node = await self._rent(name, host_data.host, all_tags, script, failures)
            return dataclasses.replace(node, failures=tuple(failures))
        except BaseException:
            if host_data.host in self._in_doubt:
                await self._terminate_order(name, host_data.host)
            raise
        finally:
            self._in_doubt.discard(host_data.host)

    async def destroy(self, node_id: str) -> None:
        """Terminate a VM, and check that it is terminated; see ``Cloud.destroy``."""
        # Some services answer the second of two requests at once with an error.
        async with self._terminating.setdefault(node_id, asyncio.Lock()):
            await self._terminate(node_id)

    async def _terminate(self, node_id: str) -> None:
        machine = self._ordered.get(node_id) or await self._find(node_id)
        if machine is None:
            return
        await self._end(machine)
        deadline_s = self._clock.now() + _END_S
        while await self._find(node_id) is not None:
            if self._clock.now() > deadline_s:
                raise CloudError(f"{self._where}: {node_id} still exists {_END_S:g} s after it was terminated")
            await self._clock.sleep_until(self._clock.now() + _POLL_S)
        self._ordered.pop(node_id, None)
        self.kind_of.pop(node_id, None)

    def unfit(self, node: Node) -> None:
        """Order another size or zone than this VM's next time; see ``Learns.unfit``."""
        self._blame(node.id)

    async def list(self, tags: Mapping[str, str]) -> list[Node]:
        """Return the VMs of any gateway that carry these tags; see ``Cloud.list``."""
        nodes = [self._node(machine) for machine in await self._machines()]
        return sorted(
            (node for node in nodes if tags.items() <= node.tags.items()), key=lambda node: (node.created_at_s, node.id)
        )

    async def close(self) -> None:
        """Take no more orders; the caller of an order waits for its terminations."""
        self._calls.close()

    # ------------------------------------------------------------------------------------------------------ ordering

    async def _rent(self, name: str, host: str, tags: Mapping[str, str], script: str, failures: Failures) -> Node:
        """Order the VM and wait until it is up; skip sizes and zones that are not available now."""
        refusals: list[str] = []
        error: CapacityError | None = None
        for size, zone in self.kinds.by_merit(self._clock.wall()):
            sized = {**tags, SIZE_TAG: size}
            order = VmOrder(name=name, host=host, tags=sized, user_data=script, size=size, zone=zone)
            try:
                machine = await self._order(order, failures)
                self.kind_of[_id(machine)] = (size, zone)
                return await self._booted(name, machine)
            except BootError:
                raise
            except CapacityError as caught:
                error = caught
                place = f"{size} in {zone}" if zone else size
                _LOG.warning("%s: %s is not available: %s", name, place, caught)
                refusals.append(f"{place}: {caught}")
                failures.append(refusals[-1])
                if host in self._in_doubt and not await self._is_cleaned_up(name, host):
                    raise  # a second VM could have the same host name
        assert error is not None, "the config has at least one size"
        raise type(error)(f"{name}: no VM is available; {'; '.join(refusals)}") from error

    def _blame(self, node_id: str) -> None:
        kind = self.kind_of.get(node_id)
        if kind is not None:
            self.kinds.was_unfit(kind, self._clock.wall())

    async def _order(self, order: VmOrder, failures: Failures) -> Machine:
        """Order one VM, even if that takes several tries and answers are lost."""
        in_doubt = False

        def create(driver: object) -> Machine:
            nonlocal in_doubt
            if in_doubt:
                for machine in self._dialect.machines(driver, HOST_TAG):
                    if self._is(machine, order.host) and not self._dialect.is_terminated(machine):
                        return machine
            before, in_doubt = in_doubt, True
            self._in_doubt.add(order.host)
            try:
                with our_errors(self._where, creating=True):
                    machine = self._dialect.create(driver, order)
            except UnavailableError:
                raise
            except CloudError:
                in_doubt = before
                if not before:
                    self._in_doubt.discard(order.host)
                raise
            in_doubt = before
            return machine

        machine = await self._calls.ask(f"order {order.name}", create, failures.append)
        self._ordered[_id(machine)] = machine
        if in_doubt:
            await self._clean(order.name, order.host, keep=_id(machine))
        _LOG.info("%s: ordered %s, %s (%s)", order.name, order.size, machine.id, self._where)
        return machine

    async def _booted(self, name: str, machine: Machine) -> Node:
        try:
            node = await self._listening(name, machine)
        except BootError:
            self._blame(_id(machine))
            raise
        kind = self.kind_of.get(node.id)
        if kind is not None:
            self.kinds.booted(kind)
        return node

    async def _listening(self, name: str, machine: Machine) -> Node:
        """Wait until the engine host on a VM listens."""
        deadline_s = self._clock.now() + self._boot_within_s
        seen = False
        while True:
            found = await self._find(_id(machine), ended=True)
            seen = seen or found is not None
            if (found is None and seen) or (found is not None and self._dialect.is_terminated(found)):
                raise _ended(name, found or machine)
            if found is not None:
                node = self._node(found)
                if node.state == "gone":
                    raise _ended(name, found)
                if node.address and await self._is_host(node.address, node.port, node.host):
                    return node
            if self._clock.now() > deadline_s:
                if found is not None and found.state is MachineState.RUNNING and not node.address:
                    raise BootError(
                        f"{name}: {machine.id} has no {self._account.address} address after {self._boot_within_s:g} s: "
                        "make its network assign one, or correct cloud.address"
                    )
                raise BootError(
                    f"{name}: nothing listens on {machine.id} after {self._boot_within_s:g} s; see its console at the "
                    f"provider, and that port {self._account.port} can be reached from here"
                )
            await self._clock.sleep_until(self._clock.now() + _POLL_S)

    # -------------------------------------------------------------------------------------------------------- ending

    async def _terminate_order(self, name: str, host: str) -> None:
        """Terminate everything that an order created, even if the caller is cancelled again meanwhile."""
        await wait_out(self._clean(name, host))

    async def _is_cleaned_up(self, name: str, host: str) -> bool:
        """Terminate what an order created although it was refused; return whether nothing is left of it."""
        await self._terminate_order(name, host)
        left = any(self._is(machine, host) for machine in self._ordered.values())
        if not left:
            self._in_doubt.discard(host)
        return not left

    async def _clean(self, name: str, host: str, keep: str = "") -> None:
        """Terminate the VMs of a host, except the one to ``keep``."""
        try:
            # An abandoned call may still create the VM.
            await self._calls.quiet(_QUIET_S)
            for machine in (*self._ordered.values(), *await self._machines()):
                if self._is(machine, host) and _id(machine) != keep:
                    self._ordered[_id(machine)] = machine
                    await self.destroy(_id(machine))
        except CloudError as error:
            _LOG.error("%s (%s) could not be terminated; the reaper will find it by its tags: %s", name, host, error)

    async def _end(self, machine: Machine) -> None:
        with contextlib.suppress(GoneError):
            await self._calls.ask(f"end {machine.id}", lambda driver: self._dialect.destroy(driver, machine))

    # ------------------------------------------------------------------------------------------------------- looking

    async def _machines(self, *, ended: bool = False) -> Sequence[Machine]:
        found = await self._calls.ask("list", lambda driver: self._dialect.machines(driver, HOST_TAG))
        return [machine for machine in found if ended or not self._dialect.is_terminated(machine)]

    async def _find(self, node_id: str, *, ended: bool = False) -> Machine | None:
        return next((machine for machine in await self._machines(ended=ended) if _id(machine) == node_id), None)

    def _node(self, machine: Machine) -> Node:
        tags = self._dialect.tags(machine)
        wanted = machine.public_ips if self._account.address == "public" else machine.private_ips
        addresses = [address for address in wanted if address]  # GCE lists an address that is not assigned yet as None
        state: NodeState = _STATES.get(machine.state, "gone")
        if state == "running" and not addresses:
            state = "starting"
        running = state == "running"
        return Node(
            id=_id(machine),
            name=tags[NAME_TAG],
            host=tags[HOST_TAG],
            state=state,
            address=str(addresses[0]) if running else "",
            port=int(tags[PORT_TAG]) if running else 0,
            created_at_s=int(tags[ORDERED_TAG]) / 1000,
            tags={key: value for key, value in tags.items() if key not in _OURS},
            size=tags.get(SIZE_TAG, ""),
        )

    def _is(self, machine: Machine, host: str) -> bool:
        return self._dialect.tags(machine).get(HOST_TAG) == host

    def _own_tags(self, name: str, host: str) -> dict[str, str]:
        ordered_ms = str(int(self._clock.wall() * 1000))
        return {HOST_TAG: host, PORT_TAG: str(self._account.port), NAME_TAG: name, ORDERED_TAG: ordered_ms}

    def _check_tags(self, tags: Mapping[str, str]) -> None:
        for key, value in tags.items():
            problem = self.profile.tag_problem(key, value)
            if problem is not None:
                raise OrderError(problem)


_STATES: Final[dict[MachineState, NodeState]] = {
    MachineState.PENDING: "starting",
    MachineState.STARTING: "starting",
    MachineState.REBOOTING: "starting",
    MachineState.RECONFIGURING: "starting",
    MachineState.MIGRATING: "running",
    MachineState.UPDATING: "running",
    MachineState.RUNNING: "running",
    # The state may be unknown although the VM exists. If it is unreachable, the link notices that.
    MachineState.UNKNOWN: "starting",
}


def _ended(name: str, machine: Machine) -> CapacityError:
    """Return the error for a VM that ended before its engine host listened: the provider refused it, or it failed."""
    reported = machine.extra.get("fault") or machine.extra.get("reason") or ""
    fault = str(reported.get("message", reported) if isinstance(reported, dict) else reported)
    kind = refusal_in(fault) or BootError
    return kind(f"{name}: {machine.id} stopped while it booted: {fault or 'see its console at the provider'}")


def _id(machine: Machine) -> str:
    return str(machine.id)
