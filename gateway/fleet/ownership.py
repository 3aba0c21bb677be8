"""One gateway at a time owns a fleet: a lease in an object store, whose epoch grows with each owner.

Clocks of different machines are not compared. The owner counts its lease from before the write. Another gateway takes
the lease only after it has seen the record unchanged, on its own monotonic clock, for a whole lease. So the owner has
stopped by then, unless it sleeps; and a sleeper's next write fails, since each write is conditional on the one before.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.config.sites import GatewayConfig
from gateway.connectors.objectstores import make_store
from infra.clock import Clock
from infra.objectstore.base import ConflictError, ObjectStore, StoreRefusedError, StoreUnavailableError
from infra.objectstore.versions import OvertakenError, Version, Versions
from infra.statefiles import StateError
from infra.threads import run_to_end
from infra.together import end_tasks

_LOG = logging.getLogger(__name__)
# The owner renews when this part of its lease is over, and sooner after a failure.
_RENEW_PART: Final = 1 / 3
_AGAIN_PART: Final = 1 / 15
_STORE_S: Final = 2.0
# How often a gateway looks that waits for a lease.
_LOOK_S: Final = 2.0
# Beside the lease's folder, which holds nothing but its versions.
_AGREED: Final = "agreed"
_AGREED_BYTES_MAX: Final = 1000


class LeaseRecord(msgspec.Struct, frozen=True):
    """A version of the lease.

    Attributes:
        holder: the owner's name, for people; ``writer``, a random word, identifies it exactly.
        writer: see ``holder``.
        epoch: grows by one with each owner.
        lease_s: how long it holds without a renewal.
        beat: counts this writer's versions, so that no two are equal.
        released: released by its owner; anyone may take it at once.
    """

    holder: str
    writer: str
    epoch: int
    lease_s: float
    beat: int
    released: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """A write to carry out now: ``record`` as version ``number``."""

    number: int
    record: LeaseRecord


class Lease:
    """Decides for one gateway what to write and whether it holds the lease. Pure.

    Args:
        holder: its name, for people.
        writer: a random word that no other gateway has.
        lease_s: how long the lease holds without a renewal.
    """

    def __init__(self, holder: str, writer: str, lease_s: float) -> None:
        self._holder = holder
        self._writer = writer
        self._lease_s = lease_s
        self._number = 0
        self._record: LeaseRecord | None = None
        self._seen_s = 0.0
        self._beat = 0
        self._until_s: float | None = None
        self.epoch = 0

    @property
    def record(self) -> LeaseRecord | None:
        """The record seen last."""
        return self._record

    def holds(self, now_s: float) -> bool:
        """Whether it is the owner at ``now_s``; once it has lost the lease, it never owns it again."""
        return self._until_s is not None and now_s < self._until_s

    def free_s(self) -> float:
        """Return when it may take the lease, if the owner does not renew it; see ``next_write``."""
        return self._seen_s + max(self._lease_s, 0.0 if self._record is None else self._record.lease_s)

    def lost(self, now_s: float) -> bool:
        """Whether it was the owner and has lost the lease."""
        return self._until_s is not None and now_s >= self._until_s

    def observe(self, number: int, record: LeaseRecord | None, now_s: float) -> None:
        """Note the latest version (0 and None if there is none), read at ``now_s`` or slightly before."""
        if number > self._number or self._record is None:
            self._number, self._record, self._seen_s = number, record, now_s
        if self._until_s is not None and record is not None and record.writer != self._writer:
            self._until_s = min(self._until_s, now_s)

    def next_write(self, now_s: float) -> Write | None:
        """Return what to write at ``now_s`` to become or stay the owner; None: wait."""
        record = self._record
        if self.lost(now_s):
            return None
        if self.holds(now_s):
            return self._write(self.epoch)
        if record is None:
            return self._write(1)
        free = record.released or record.writer == self._writer
        if free or now_s >= self.free_s():
            return self._write(record.epoch + 1)
        return None

    def release(self) -> Write:
        """Return what to write to release it."""
        write = self._write(self.epoch)
        return Write(write.number, msgspec.structs.replace(write.record, released=True))

    def written(self, write: Write, asked_s: float, now_s: float) -> None:
        """Note at ``now_s`` that ``write``, requested at ``asked_s``, succeeded and was the latest."""
        self._number, self._record, self._seen_s = write.number, write.record, now_s
        until_s = asked_s + self._lease_s
        if self.lost(now_s) or now_s >= until_s:
            # The answer came so late that others may own it: a gateway that never owned it starts again.
            return
        self.epoch = write.record.epoch
        self._until_s = until_s

    def _write(self, epoch: int) -> Write:
        self._beat += 1
        return Write(self._number + 1, LeaseRecord(self._holder, self._writer, epoch, self._lease_s, self._beat))


class Ownership:
    """Takes and renews a lease.

    Args:
        store: the object store.
        fleet: the fleet's name.
        holder: this gateway's name, for people.
        clock: time.
        lease_s: how long it holds without a renewal.

    Attributes:
        store: the object store.
        fleet: the fleet's name.
    """

    def __init__(self, store: ObjectStore, fleet: str, holder: str, clock: Clock, lease_s: float) -> None:
        self._versions = Versions(store, f"fleets/{fleet}")
        self._what = f"fleet {fleet} in {store}"
        self._lease = Lease(holder, secrets.token_hex(8), lease_s)
        self._clock = clock
        self._lease_s = lease_s
        self._why = ""
        self.store = store
        self.fleet = fleet
        self._keeping: asyncio.Task[None] | None = None

    @property
    def vm_tag(self) -> str:
        """The same for all gateways of the fleet, so that each owner finds the VMs of those before it."""
        return hashlib.sha256(self._what.encode()).hexdigest()[:16]

    @property
    def epoch(self) -> int:
        """Counts the owners; 0 before this gateway owned it."""
        return self._lease.epoch

    @property
    def holds(self) -> bool:
        """Whether this gateway may write now."""
        return self._lease.holds(self._clock.now())

    @property
    def failure(self) -> str | None:
        """Why this gateway must stop, if it must."""
        if not self._lease.lost(self._clock.now()):
            return None
        record = self._lease.record
        if record is not None and record.epoch > self._lease.epoch:
            return f"{self._what} was taken over by {record.holder} (epoch {record.epoch}): this gateway stops writing"
        return (
            f"the lease of {self._what} was not renewed within {self._lease_s:g}s "
            f"({self._why or 'this gateway slept'}): it stops writing; check that it reaches the store"
        )

    async def begin(self) -> None:
        """Wait until this gateway is the owner, and renew the lease from then on, until ``end``; see ``take``."""
        await self.take()
        self._keeping = asyncio.create_task(self.keep(), name="keep the lease")

    async def end(self) -> None:
        """Stop renewing the lease, and release it if this gateway owns it."""
        await end_tasks(self._keeping)
        await self.release()

    def agreed(self, name: str, value: str) -> str:
        """Return what all gateways of the fleet use under ``name``: the first value that was given. Blocks.

        Raises:
            StateError: the store cannot be asked.
        """
        place = f"{_AGREED}/{self.fleet}/{name}"
        try:
            found = self.store.get(place, bytes_max=_AGREED_BYTES_MAX)
            if found is not None:
                return found.data.decode()
            with suppress(ConflictError):
                self.store.put_if_absent(place, value.encode())
            found = self.store.get(place, bytes_max=_AGREED_BYTES_MAX)
        except (StoreUnavailableError, StoreRefusedError) as error:
            raise StateError(f"{self._what}: {name} cannot be read or written: {error}") from error
        if found is None:
            raise StateError(f"{self._what}: {place} was deleted by another program: restore it")
        return found.data.decode()

    async def take(self) -> None:
        """Wait until this gateway is the owner; logs the present owner meanwhile.

        Raises:
            StateError: the store refuses, or the record is not a lease.
        """
        told = ""
        while not self.holds:
            await self._step()
            record = self._lease.record
            if not self.holds and record is not None and record.writer != told:
                told = record.writer
                _LOG.warning(
                    "%s is owned by %s (epoch %d): waiting until the owner stops, or is silent for %gs",
                    self._what,
                    record.holder,
                    record.epoch,
                    record.lease_s,
                )
            if not self.holds:
                # Who looks late also sees late that the record does not change.
                now_s = self._clock.now()
                look_s = min(_LOOK_S, self._lease_s * _RENEW_PART)
                free_s = self._lease.free_s()
                await self._clock.sleep_until(min(now_s + look_s, free_s) if free_s > now_s else now_s + look_s)
        _LOG.info("this gateway owns %s, epoch %d", self._what, self.epoch)

    async def keep(self) -> None:
        """Renew the lease until it is lost; then ``failure`` holds the reason."""
        while self.failure is None:
            part = _AGAIN_PART if self._why else _RENEW_PART
            await self._clock.sleep_until(self._clock.now() + self._lease_s * part)
            try:
                await self._step()
            except StateError as error:
                self._why = str(error)
                _LOG.error("%s", error)

    async def release(self) -> None:
        """Release it, so that another gateway can take it at once; if that fails, the other waits for one lease."""
        if not self.holds:
            return
        write = self._lease.release()
        try:
            await run_to_end(lambda: self._versions.add(write.number, msgspec.json.encode(write.record)))
        except (OvertakenError, StoreUnavailableError, StoreRefusedError) as error:
            _LOG.warning(
                "the lease of %s could not be released (%s): the next owner waits %gs", self._what, error, self._lease_s
            )

    async def _step(self) -> None:
        """Read the record, and write if it is time."""
        try:
            await self._look()
            asked_s = self._clock.now()
            write = self._lease.next_write(asked_s)
            if write is None:
                return
            await run_to_end(lambda: self._versions.add(write.number, msgspec.json.encode(write.record)))
            self._lease.written(write, asked_s, self._clock.now())
            self._why = ""
            await run_to_end(lambda: self._versions.prune(write.number))
        except OvertakenError as overtaken:
            self._observe(overtaken.latest)
        except StoreUnavailableError as error:
            self._why = str(error)
            _LOG.warning("the lease of %s could not be read or written: %s", self._what, error)
        except StoreRefusedError as error:
            raise StateError(f"{self._what}: {error}") from error

    async def _look(self) -> None:
        latest = await run_to_end(self._versions.latest)
        if latest is None:
            self._lease.observe(0, None, self._clock.now())
        else:
            self._observe(latest)

    def _observe(self, latest: Version) -> None:
        try:
            record = msgspec.json.decode(latest.data, type=LeaseRecord)
        except msgspec.DecodeError as error:
            raise StateError(
                f"{self._what}: version {latest.number} is not a lease ({error}): choose another fleet name or store"
            ) from error
        self._lease.observe(latest.number, record, self._clock.now())


@asynccontextmanager
async def owned_fleet(config: GatewayConfig, clock: Clock) -> AsyncIterator[Ownership | None]:
    """Yield the ownership of the config's fleet, which ``begin`` takes, and end it; None if the config names none.

    Raises:
        StateError: the object store cannot be used.
    """
    if config.fleet is None or config.object_store is None:
        yield None
        return
    place, holder = config.object_store, f"{socket.gethostname()}, process {os.getpid()}"
    try:
        store = await asyncio.to_thread(lambda: make_store(place, wait_s=_STORE_S))
    except (StoreRefusedError, StoreUnavailableError) as error:
        raise StateError(f"gateway.object_store: {error}") from error
    ownership = Ownership(store, config.fleet, holder, clock, config.lease_s)
    try:
        yield ownership
    finally:
        await ownership.end()
