"""Machines rented through apache-libcloud: one adapter, whoever the provider is.

A machine carries tags of ours beside the gateway's, all set by the call that creates it: its host's name, by which an
order whose answer was lost is found again; its port; its name; its size; and when it was ordered, to the millisecond.
So a machine can be given back from the moment it can cost. Only machines with these tags are listed or ever ended.
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

Knock = Callable[[str, int, str], Awaitable[bool]]
Setbacks = list[str]
"""What went wrong with an order so far."""


async def knock(address: str, port: int, host: str) -> bool:
    """Return whether something there says that it is the engine host; that it is, is proven when it is enrolled.

    A connection alone says little, even with TLS: firewalls and proxies on the way accept those in the name of machines
    that are not up yet.
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
        account: where, by whom and of what kind.
        boot_script: makes a machine's user data from the ``UserData`` of its engine host.
        clock: measures deadlines and pauses.
        boot_within_s: a machine that does not listen after so long has failed to boot; None: as its provider's do.
        knock: tells whether an engine host listens.
        call_s: how long a call to the provider is waited for.
        memory: the file that keeps which kinds of machine were of no use; None: a restart forgets it.
    """

    def __init__(
        self,
        account: Account,
        boot_script: Callable[[UserData], Awaitable[str]],
        clock: Clock,
        *,
        boot_within_s: float | None = None,
        knock: Knock = knock,
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
        self._knock = knock
        self._calls = Calls(self._dialect.connect, self._where, clock, call_s)
        # A provider's list may lag behind what it has just created.
        self._ordered: dict[str, Machine] = {}
        # Hosts whose machine may exist: a refusal is no reason to look for it, a lost answer is.
        self._in_doubt: set[str] = set()
        self._kinds = Kinds(account, memory)
        self._kind_of: dict[str, Kind] = {}  # by the id of the machine that was ordered

    async def create(self, name: str, tags: Mapping[str, str], user_data: str) -> Node:
        """Rent a machine of the first size and zone that can be had; see ``Cloud.create``."""
        told = msgspec.structs.replace(
            UserData.from_json(user_data),
            listen_host="0.0.0.0",  # noqa: S104 -- whoever comes has to prove itself
            listen_port=self._account.port,
        )
        all_tags = {**tags, **self._own_tags(name, told.host)}
        for size in self._account.sizes:
            self._check_tags({**all_tags, SIZE_TAG: size})
        script = await self._boot_script(told)
        size_bytes = len(script.encode())
        if size_bytes > self.profile.user_data_bytes_max:
            most_bytes = self.profile.user_data_bytes_max
            raise OrderError(f"{name}: its user data has {size_bytes} bytes and {self._where} takes {most_bytes}")
        setbacks: Setbacks = []
        try:
            node = await self._had(name, told.host, all_tags, script, setbacks)
            return dataclasses.replace(node, setbacks=tuple(setbacks))
        except BaseException:
            if told.host in self._in_doubt:
                await self._give_back(name, told.host)
            raise
        finally:
            self._in_doubt.discard(told.host)

    async def destroy(self, node_id: str) -> None:
        """Give a machine back, and see that it is; see ``Cloud.destroy``."""
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
        self._kind_of.pop(node_id, None)

    def unfit(self, node: Node) -> None:
        """Order another size or zone than this machine's next time; see ``Learns.unfit``."""
        self._blame(node.id)

    async def list(self, tags: Mapping[str, str]) -> list[Node]:
        """Return the machines of any gateway that carry these tags; see ``Cloud.list``."""
        nodes = [self._node(machine) for machine in await self._machines()]
        return sorted(
            (node for node in nodes if tags.items() <= node.tags.items()), key=lambda node: (node.created_at_s, node.id)
        )

    async def close(self) -> None:
        """Take no more orders; whoever ordered waits for what is being given back."""
        self._calls.close()

    # ------------------------------------------------------------------------------------------------------ ordering

    async def _had(self, name: str, host: str, tags: Mapping[str, str], script: str, setbacks: Setbacks) -> Node:
        """Order the machine until it is up; sizes and zones that cannot be had now are passed over."""
        refusals: list[str] = []
        error: CapacityError | None = None
        for size, zone in self._kinds.by_merit(self._clock.wall()):
            sized = {**tags, SIZE_TAG: size}
            order = VmOrder(name=name, host=host, tags=sized, user_data=script, size=size, zone=zone)
            try:
                machine = await self._order(order, setbacks)
                self._kind_of[_id(machine)] = (size, zone)
                return await self._booted(name, machine)
            except BootError:
                raise
            except CapacityError as caught:
                error = caught
                place = f"{size} in {zone}" if zone else size
                _LOG.warning("%s: %s is not available: %s", name, place, caught)
                refusals.append(f"{place}: {caught}")
                setbacks.append(refusals[-1])
                if host in self._in_doubt and not await self._given_back(name, host):
                    raise  # the next order would be for the same host
        assert error is not None, "the config has at least one size"
        raise type(error)(f"{name}: no VM is available; {'; '.join(refusals)}") from error

    def _blame(self, node_id: str) -> None:
        kind = self._kind_of.get(node_id)
        if kind is not None:
            self._kinds.was_unfit(kind, self._clock.wall())

    async def _order(self, order: VmOrder, setbacks: Setbacks) -> Machine:
        """Order it once, even if that takes several tries and answers are lost."""
        in_doubt = False

        def create(driver: object) -> Machine:
            nonlocal in_doubt
            if in_doubt:
                for machine in self._dialect.machines(driver, HOST_TAG):
                    if self._is(machine, order.host) and not self._dialect.given_back(machine):
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

        machine = await self._calls.ask(f"order {order.name}", create, setbacks.append)
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
        kind = self._kind_of.get(node.id)
        if kind is not None:
            self._kinds.booted(kind)
        return node

    async def _listening(self, name: str, machine: Machine) -> Node:
        """Wait until the engine host on a machine listens."""
        deadline_s = self._clock.now() + self._boot_within_s
        seen = False
        while True:
            found = await self._find(_id(machine), ended=True)
            seen = seen or found is not None
            if (found is None and seen) or (found is not None and self._dialect.given_back(found)):
                raise _ended(name, found or machine)
            if found is not None:
                node = self._node(found)
                if node.state == "gone":
                    raise _ended(name, found)
                if node.address and await self._knock(node.address, node.port, node.host):
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

    async def _give_back(self, name: str, host: str) -> None:
        """End whatever came of an order, even if the caller is cancelled again meanwhile."""
        await wait_out(self._clean(name, host))

    async def _given_back(self, name: str, host: str) -> bool:
        """End what came of an order that was refused after all; return whether nothing is left of it."""
        await self._give_back(name, host)
        left = any(self._is(machine, host) for machine in self._ordered.values())
        if not left:
            self._in_doubt.discard(host)
        return not left

    async def _clean(self, name: str, host: str, keep: str = "") -> None:
        """End the machines of a host, but for the one to ``keep``."""
        try:
            # A call for which nobody waits any more may still create the machine.
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
        return [machine for machine in found if ended or not self._dialect.given_back(machine)]

    async def _find(self, node_id: str, *, ended: bool = False) -> Machine | None:
        return next((machine for machine in await self._machines(ended=ended) if _id(machine) == node_id), None)

    def _node(self, machine: Machine) -> Node:
        tags = self._dialect.tags(machine)
        wanted = machine.public_ips if self._account.address == "public" else machine.private_ips
        addresses = [address for address in wanted if address]  # GCE lists one that is still to be given as None
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
    # It says nothing of a machine that is there; what is unreachable is noticed by its link.
    MachineState.UNKNOWN: "starting",
}


def _ended(name: str, machine: Machine) -> CapacityError:
    """Return what to say of a machine that ended before its engine host listened: it was refused, or it failed."""
    told = machine.extra.get("fault") or machine.extra.get("reason") or ""
    fault = str(told.get("message", told) if isinstance(told, dict) else told)
    kind = refusal_in(fault) or BootError
    return kind(f"{name}: {machine.id} stopped while it booted: {fault or 'see its console at the provider'}")


def _id(machine: Machine) -> str:
    return str(machine.id)
