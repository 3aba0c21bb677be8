"""The stored state of a session with a broker, so that a QoS 2 message is accepted once, whatever crashes when.

The broker sends a QoS 2 message again, with the same packet id and marked DUP, until it gets a PUBREC. Then it sends
PUBREL until it gets a PUBCOMP; only then may it reuse the id for another message. So the ids between the two are stored
on disk. (mosquitto, restarted before it got a PUBCOMP, may send such a message once more: see docs/decisions/0078.)
Before an append to the journal, the file records which ids are in it, with a key that the journal stores beside them:
after a crash the journal shows whether the append succeeded.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gateway.connectors.heldpaho import Arrival
from gateway.connectors.mqttclient import MessageReleased
from infra.statefiles import StateError, make_folder, write_atomically
from infra.threads import run_to_end

RECEIVE_MAX: Final = 1000
_IDS: Final = ".ids"
_FILTERS: Final = ".filters"


class _Noted(msgspec.Struct, frozen=True):
    """Messages of an append that is in progress.

    Attributes:
        key: of the append.
        from_record: the append, if it succeeded, is not before this record.
        ids: packet id to digest.
    """

    key: str
    from_record: int
    ids: dict[int, str]


class _State(msgspec.Struct, frozen=True):
    """The content of the file.

    Attributes:
        filters: the subscriptions, with their QoS.
        ids: packet id to digest, of messages that are in the journal and not yet released by the broker.
        noted: the last append, whose outcome the file does not know.
    """

    filters: dict[str, int] = {}
    ids: dict[int, str] = {}
    noted: _Noted | None = None


def restore_sessions(folder: Path, notes: Mapping[str, bytes]) -> None:
    """Make the files of the sessions that a journal's copy knows; it is never behind the files. Blocks.

    Raises:
        OSError: the disk fails.
    """
    for name in notes:
        stem = name.removesuffix(_IDS)
        if stem != name:
            ids = msgspec.json.decode(notes[name], type=dict[int, str])
            filters = msgspec.json.decode(notes.get(f"{stem}{_FILTERS}", b"{}"), type=dict[str, int])
            make_folder(folder)
            write_atomically(folder / f"{stem}.json", msgspec.json.encode(_State(filters, ids)))


def _digest(arrival: Arrival) -> str:
    return hashlib.blake2b(arrival.topic.encode() + b"\0" + arrival.payload, digest_size=12).hexdigest()


class Session:
    """The session of one client id.

    Args:
        path: of its file.
        receive_max: so many messages the broker may send before they are acknowledged; of as many it may not have
            heard the last word.
    """

    def __init__(self, path: Path, receive_max: int = RECEIVE_MAX) -> None:
        self.receive_max = receive_max
        self._path = path
        self._writing = asyncio.Lock()
        self._filters: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        # The append whose outcome is unknown, and the first record of an append that succeeded but is not in the file.
        self._noted: _Noted | None = None
        self._behind_from: int | None = None
        # The last ids that the broker released, oldest first, and how many ids it has used since without reuse.
        self._released: dict[int, str] = {}
        self._ids_onward = 0

    @property
    def filters(self) -> dict[str, int]:
        """The subscriptions, with their QoS."""
        return self._filters

    @property
    def open_count(self) -> int:
        """How many messages in the journal the broker has not released."""
        return len(self._ids)

    async def open(self, keys_since: Callable[[int], set[str]]) -> None:
        """Read the file, and find out whether the last append succeeded.

        Args:
            keys_since: returns the keys of the journal's appends from a record on; blocks.

        Raises:
            StateError: the file cannot be read.
            OSError: the disk fails.
        """
        state = await run_to_end(self._read)
        self._filters, self._ids, noted = state.filters, state.ids, state.noted
        if noted is not None and noted.key in await run_to_end(lambda: keys_since(noted.from_record)):
            self._ids |= noted.ids
            self._behind_from = noted.from_record

    def _read(self) -> _State:
        if not self._path.exists():
            return _State()
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_State)
        except msgspec.DecodeError as error:
            raise StateError(
                f"{self._path} cannot be read ({error}): restore it from a backup, or remove it: then messages of "
                "QoS 2 that were in flight may arrive twice"
            ) from error

    def is_known(self, arrival: Arrival) -> bool:
        """Return whether a message is in the journal already; this is only known at QoS 2.

        A broker that was restored may use an id for another message, so the content must be equal, too.
        """
        if arrival.qos < 2 or not arrival.again:
            return False
        held = self._ids.get(arrival.packet_id)
        if held is None and self._ids_onward > self.receive_max:
            held = self._released.get(arrival.packet_id)
        return held == _digest(arrival)

    async def note(self, fresh: Sequence[Arrival], releases: Sequence[MessageReleased], from_record: int) -> str:
        """Record durably that the ids of ``releases`` are free, and which messages the next append holds.

        Returns:
            The key that the append must carry; empty when it needs none.
        """
        ids = {arrival.packet_id: _digest(arrival) for arrival in fresh if arrival.qos == 2}
        if not ids and not releases:
            return ""
        if not ids.keys().isdisjoint(self._released):  # it uses ids again so soon: one may be another message's
            self._released, self._ids_onward = {}, 0
        self._let_go(releases)
        self._noted = _Noted(secrets.token_hex(12), from_record, ids) if ids else None
        await self._write()
        return self._noted.key if self._noted is not None else ""

    def _let_go(self, releases: Sequence[MessageReleased]) -> None:
        for release in releases:
            earlier = self._released.pop(release.packet_id, None)
            if digest := self._ids.pop(release.packet_id, earlier):
                self._released[release.packet_id] = digest
        while len(self._released) > self.receive_max:
            del self._released[next(iter(self._released))]

    def made(self) -> None:
        """Note that the last recorded append succeeded."""
        if self._noted is not None:
            self._ids |= self._noted.ids
            self._ids_onward += len(self._noted.ids)  # not when noted: a disk that fails has that done again and again
            self._behind_from, self._noted = self._noted.from_record, None

    async def settle(self, before_record: int) -> None:
        """Make durable what only the journal's records before this one show, since they will be deleted."""
        if self._behind_from is not None and self._behind_from < before_record:
            await self._write()

    async def begin(self) -> None:
        """Forget everything: the broker has no session, so it has sent none of its next messages before."""
        self._ids, self._noted, self._filters = {}, None, {}
        self._released, self._ids_onward = {}, 0
        await self._write()

    async def note_filters(self, filters: dict[str, int]) -> None:
        """Record durably what is, or is about to be, subscribed."""
        if filters != self._filters:
            self._filters = filters
            await self._write()

    def ids_note(self) -> dict[str, bytes]:
        """Return the ids, with those of the append in progress, for the journal's copy: it goes there with the append.

        A note replaces the one before; the subscriptions have their own, since they change beside appends.
        """
        noted = {} if self._noted is None else self._noted.ids
        return {f"{self._path.stem}{_IDS}": msgspec.json.encode(self._ids | noted)}

    def filters_note(self) -> dict[str, bytes]:
        """Return the subscriptions for the journal's copy."""
        return {f"{self._path.stem}{_FILTERS}": msgspec.json.encode(self._filters)}

    def notes(self) -> dict[str, bytes]:
        """Return everything for the journal's copy, while nothing is appended."""
        return self.ids_note() | self.filters_note()

    async def _write(self) -> None:
        async with self._writing:
            noted, behind_from = self._noted, self._behind_from
            data = msgspec.json.encode(_State(self._filters, self._ids, noted))
            await run_to_end(lambda: write_atomically(self._path, data))
            if self._behind_from == behind_from:
                self._behind_from = None

    async def remove(self) -> None:
        """Delete the file."""
        await run_to_end(lambda: self._path.unlink(missing_ok=True))
