"""The embedded cloud: worker processes on this machine, each on CPUs of its own where there are several.

Warm hosts: Spark needs 14-17 s to start. A demonstration should not wait so long, and the time varies more than a
provider's boot time. With ``warm``, ``prepare`` starts the hosts and the gateway enrols them then, once. A later
``create`` assigns one of them when the emulated boot time has passed, and ``destroy`` puts it back into the pool. A
host keeps its certificate, and so its name, for its whole life. The user data of that ``create`` is not used, since its
token would only enrol a host without a certificate. A closed link resets the host: it drops its queries when the
gateway disconnects.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from infra.clock import Clock
from infra.clouds import processes
from infra.clouds.base import BootError, CapacityError, Cloud, Node
from infra.clouds.registry import Registry, VmRecord
from infra.link.keys.secret_files import write_private
from infra.link.keys.trust import UserData

WORKER_COMMAND: Final = (sys.executable, "-m", "engines.worker")
_POLL_S: Final = 0.02
_TERM_S: Final = 5.0
_KILL_S: Final = 2.0
_LISTEN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker runs, if not directly on this machine.

    Attributes:
        command: the prefix that starts a program there.
        address: where the worker listens.
    """

    command: tuple[str, ...]
    address: str


class HostAddress(msgspec.Struct, frozen=True):
    """What a worker writes to ``host.json`` in its working folder once it listens; more fields may be there."""

    address: str
    port: int


class ProcessCloud(Cloud):
    """Worker processes in the role of VMs.

    Args:
        registry: folder for records and working folders; only one gateway at a time may use it.
        clock: measures deadlines and the emulated boot time.
        max_vms: at most this many VMs, and this many warm hosts.
        boot_s: the emulated boot time; only ``warm`` uses it.
        warm: assign hosts that ``prepare`` started.
        master: Spark master of each worker.
        spark_conf: the user's Spark settings for each worker.
        cpu_sets: assigned to the VMs round robin; empty means that they are not pinned.
        places: assigned to the VMs round robin; empty means that all run directly on this machine.
        worker_command: the program, before the arguments of each worker.
        listen_within_s: the boot of a worker that does not listen within this time has failed.
    """

    def __init__(
        self,
        registry: Path,
        clock: Clock,
        *,
        max_vms: int,
        boot_s: float = 0.0,
        warm: bool = False,
        master: str = "local[1]",
        spark_conf: Mapping[str, str] = MappingProxyType({}),
        cpu_sets: Sequence[str] = (),
        places: Sequence[Place] = (),
        worker_command: Sequence[str] = WORKER_COMMAND,
        listen_within_s: float = _LISTEN_S,
    ) -> None:
        self._registry = Registry(registry)
        self._clock = clock
        self.max_vms = max_vms
        self._boot_s = boot_s
        self._warm = warm
        self._master = master
        self._spark_conf = dict(spark_conf)
        self._cpu_sets = tuple(cpu_sets)
        self._places = tuple(places)
        self._worker_command = tuple(worker_command)
        self._listen_within_s = listen_within_s

    async def prepare(self, user_data: Callable[[str], str]) -> list[Node]:
        """With ``warm``, start hosts until there are ``max_vms``, and return all hosts of the pool.

        The caller enrols each host for which ``user_data`` was called. It must not be without a link to the host for
        longer than ``orphan_after_s`` of that user data. Hosts of an earlier gateway are found again and are enrolled
        already.

        Args:
            user_data: called with a new host's name, returns its user data as JSON.

        Raises:
            BootError: a host does not start.
        """
        if not self._warm:
            return []
        for record in self._registry.all():
            if record.stage == "pool" and not self._is_as_new(record):
                await self._end(record)
        missing = self.max_vms - len(self._registry.all())
        new = [self._new_record("warm", {}, stage="pool") for _ in range(missing)]
        await asyncio.gather(*(self._start(record, user_data) for record in new))
        return [record.node(runs=True) for record in self._registry.all() if record.stage == "pool"]

    async def create(self, name: str, tags: Mapping[str, str], user_data: str) -> Node:
        """Start a worker, or assign a warm one; see ``Cloud.create``."""
        vms = [record for record in self._registry.all() if record.stage != "pool"]
        if len(vms) >= self.max_vms:
            raise CapacityError(
                f"{name}: {len(vms)} process VMs run and max_vms is {self.max_vms}; terminate one first"
            )
        pool = [record for record in self._registry.all() if record.stage == "pool" and self._runs(record)]
        if pool:
            return await self._assign(pool[0], name, tags)
        record = self._new_record(name, tags, stage="starting")
        started = await self._start(record, lambda _: user_data)
        return started.node(runs=True)

    async def destroy(self, node_id: str) -> None:
        """Terminate a worker, or put a warm one back into the pool; see ``Cloud.destroy``."""
        record = self._registry.get(node_id)
        if record is None:
            return
        if record.boot == "emulated" and self._warm and self._is_as_new(record):
            self._return_to_pool(record)
        else:
            await self._end(record)

    async def list(self, tags: Mapping[str, str]) -> list[Node]:
        """Return the VMs with these tags, also those of an earlier gateway; see ``Cloud.list``."""
        return [
            record.node(runs=self._runs(record))
            for record in self._registry.all()
            if record.stage != "pool" and tags.items() <= record.tags.items()
        ]

    async def log_tail(self, node_id: str) -> str:
        """Return the end of a worker's log, once it has exited or after a few seconds; see ``ReadsLogs.log_tail``."""
        record = self._registry.get(node_id)
        if record is None:
            return ""
        deadline_s = self._clock.now() + _TERM_S
        while self._runs(record) and self._clock.now() < deadline_s:
            await self._clock.sleep_until(self._clock.now() + _POLL_S)
        return self._registry.log_tail(node_id)

    async def close(self) -> None:
        """Terminate the warm hosts that are not assigned."""
        await asyncio.gather(*(self._end(record) for record in self._registry.all() if record.stage == "pool"))

    # -------------------------------------------------------------------------------------------------- warm hosts

    async def _assign(self, host: VmRecord, name: str, tags: Mapping[str, str]) -> Node:
        record = msgspec.structs.replace(
            host, name=name, tags=dict(tags), stage="starting", created_at_s=self._clock.wall(), boot="emulated"
        )
        self._registry.put(record)
        try:
            await self._clock.sleep_until(self._clock.now() + self._boot_s)
        except BaseException:
            self._return_to_pool(record)
            raise
        if not self._runs(record):
            await self._end(record)
            raise BootError(f"{name}: the warm host {host.host} exited before it was ready; try again")
        record = msgspec.structs.replace(record, stage="running")
        self._registry.put(record)
        return record.node(runs=True)

    def _is_as_new(self, record: VmRecord) -> bool:
        """Return whether a host runs with the settings that a new one would get."""
        if not self._runs(record):
            return False
        given = UserData.from_json(self._registry.user_data_file(record.id).read_bytes())
        return given.spark_conf == self._spark_conf

    def _return_to_pool(self, record: VmRecord) -> None:
        self._registry.put(msgspec.structs.replace(record, stage="pool", name="warm", tags={}, boot="real"))

    # ---------------------------------------------------------------------------------------------------- processes

    def _new_record(self, name: str, tags: Mapping[str, str], *, stage: str) -> VmRecord:
        taken = {record.place for record in self._registry.all()}
        identity = f"vm-{uuid.uuid4().hex[:12]}"
        record = msgspec.convert(
            {
                "id": identity,
                "name": name,
                "host": identity,
                "place": next(place for place in range(len(taken) + 1) if place not in taken),
                "stage": stage,
                "created_at_s": self._clock.wall(),
                "tags": dict(tags),
            },
            VmRecord,
        )
        self._registry.put(record)
        return record

    async def _start(self, record: VmRecord, user_data: Callable[[str], str]) -> VmRecord:
        """Spawn the worker of a written record and wait until it listens; remove everything when that fails."""
        try:
            given = UserData.from_json(user_data(record.host))
            record = msgspec.structs.replace(record, host=given.host)
            record = self._spawn(record, given)
            return await self._listening(record)
        except BaseException:
            record = self._registry.get(record.id) or record
            if record.pid:
                processes.kill_session(record.pid, record.mark)
            self._registry.forget(record.id)
            raise

    def _spawn(self, record: VmRecord, given: UserData) -> VmRecord:
        begin: tuple[str, ...] = ()
        given = given.with_spark_conf(self._spark_conf)
        if self._places:
            place = self._places[record.place % len(self._places)]
            begin, given = place.command, msgspec.structs.replace(given, listen_host=place.address)
        workdir = self._registry.workdir(record.id)
        workdir.mkdir(mode=0o700)
        file = self._registry.user_data_file(record.id)
        write_private(file, given.to_json().encode())
        cpus = ("--cpus", self._cpu_sets[record.place % len(self._cpu_sets)]) if self._cpu_sets else ()
        program = (*begin, *self._worker_command)
        command = (*program, "--user-data", str(file), "--workdir", str(workdir), "--master", self._master)
        try:
            pid = processes.spawn((*command, *cpus), self._registry.log_file(record.id))
        except OSError as error:
            raise CapacityError(f"{record.name}: {command[0]} cannot be started here ({error.strerror})") from error
        record = msgspec.structs.replace(record, pid=pid, mark=processes.start_mark(pid) or "ended at once")
        self._registry.put(record)
        return record

    async def _listening(self, record: VmRecord) -> VmRecord:
        file = self._registry.workdir(record.id) / "host.json"
        deadline_s = self._clock.now() + self._listen_within_s
        while (found := _read_host_file(file)) is None:
            if not self._runs(record):
                tail = self._registry.log_tail(record.id) or "it wrote nothing"
                raise BootError(f"{record.name}: the worker exited before it listened; the end of its log: {tail}")
            if self._clock.now() > deadline_s:
                tail = self._registry.log_tail(record.id) or "it wrote nothing"
                raise BootError(
                    f"{record.name}: the worker did not listen within {self._listen_within_s:g} s; its log ends: {tail}"
                )
            await self._clock.sleep_until(self._clock.now() + _POLL_S)
        stage = "running" if record.stage == "starting" else record.stage
        record = msgspec.structs.replace(record, address=found.address, port=found.port, stage=stage)
        self._registry.put(record)
        return record

    async def _end(self, record: VmRecord) -> None:
        """Send SIGTERM, wait, send SIGKILL to what is left of the session; then delete the record."""
        record = self._identified(record)
        if record.pid:
            processes.ask_to_end(record.pid, record.mark)
            deadline_s = self._clock.now() + _TERM_S
            while not processes.session_is_empty(record.pid, record.mark) and self._clock.now() < deadline_s:
                await self._clock.sleep_until(self._clock.now() + _POLL_S)
            processes.kill_session(record.pid, record.mark)
            if not await asyncio.to_thread(processes.wait_empty, record.pid, record.mark, _KILL_S):
                raise CapacityError(f"{record.id}: process {record.pid} does not exit; kill it by hand, then try again")
        self._registry.forget(record.id)

    def _runs(self, record: VmRecord) -> bool:
        record = self._identified(record)
        return record.pid != 0 and processes.is_running(record.pid, record.mark)

    def _identified(self, record: VmRecord) -> VmRecord:
        """Find the process of a record whose gateway died between starting the process and noting its number."""
        if record.pid:
            return record
        pid = processes.find_by_argument(str(self._registry.user_data_file(record.id)))
        mark = processes.start_mark(pid) if pid else None
        return msgspec.structs.replace(record, pid=pid, mark=mark) if pid and mark else record


def _read_host_file(path: Path) -> HostAddress | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=HostAddress)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
