"""Sends a checkpoint to a VM over the link, and fetches it back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from engines.streaming.checkpoints import CheckpointError
from engines.streaming.statefiles import (
    SLICE_BYTES,
    SLICES_BYTES_MOST,
    StateCopy,
    StateFile,
    StateSlice,
    packed,
    unpacked,
)
from gateway.hosts.connection import Connection
from infra.messages import (
    FetchState,
    InstallState,
    ListState,
    OfferState,
    StateEnd,
    StatePart,
    StateReply,
)
from infra.threads import run_to_end
from infra.together import wait_out

Request = OfferState | InstallState | ListState | FetchState | StateEnd

REPLY_S = 120.0
"""An answer of the host may take this long; between two answers there are at most `SLICES_BYTES_MOST`."""
_LISTINGS_MOST = 5


class TransferError(Exception):
    """State cannot be copied; the message says why."""


class StateTransfer:
    """Copies the state of one query between this machine and one VM. One call at a time.

    Args:
        connection: to the VM.
        query: the query's name.
        copy: names the copy on the VM.

    Attributes:
        moved_bytes: how many bytes of files were sent or fetched; its user sets it to 0 after each move.
    """

    def __init__(self, connection: Connection, query: str, copy: str) -> None:
        self._connection = connection
        self._query = query
        self._copy = copy
        self._parts: list[tuple[StatePart, bytes]] = []
        self._reply: asyncio.Future[bytes] | None = None
        self.moved_bytes = 0
        connection.listen_for_state(query, copy, self._take)

    async def push(self, files: Sequence[StateFile], start: Path) -> None:
        """Send the files of a start that the VM does not have yet; those that Spark has removed since are skipped.

        Raises:
            TransferError: the VM cannot store them.
            LinkLost: the link was lost.
            TimeoutError: the VM did not answer in time.
        """
        answer = await self._ask(OfferState(query=self._query, copy=self._copy), packed(files))
        missing = frozenset(msgspec.json.decode(answer, type=list[str]))
        contents = {file.sha256: file for file in files if file.sha256 in missing}
        for batch in batches(contents.values()):
            for each in batch:
                data = await run_to_end(lambda each=each: _read(start, each))  # type: ignore[misc]
                if data is None:
                    continue
                part = StatePart(query=self._query, copy=self._copy, sha256=each.file.sha256, offset=each.offset)
                await self._connection.link.send(part, data)
                self.moved_bytes += len(data)
            await self._ask(StateEnd(query=self._query, copy=self._copy))

    async def install(self, files: Sequence[StateFile]) -> None:
        """Make these files, which were all sent, the checkpoint with which the query may be opened on the VM.

        Raises:
            TransferError: a file has not arrived.
            LinkLost: the link was lost.
            TimeoutError: the VM did not answer in time.
        """
        await self._ask(InstallState(query=self._query, copy=self._copy), packed(files))

    async def pull(self, into: StateCopy) -> list[StateFile]:
        """Fetch what of the VM's checkpoint is missing here; return its files, all of which are here then.

        Raises:
            TransferError: the VM cannot send them, or they change too fast.
            LinkLost: the link was lost.
            TimeoutError: the VM did not answer in time.
        """
        for _ in range(_LISTINGS_MOST):
            files = await self._files()
            missing = await run_to_end(lambda files=files: into.missing(files))  # type: ignore[misc]
            if all([await self._fetch(batch, into) for batch in batches(missing)]):
                return files
        raise TransferError(f"{self._connection.name}: the files of the state change faster than they are sent")

    async def _files(self) -> list[StateFile]:
        try:
            return unpacked(await self._ask(ListState(query=self._query, copy=self._copy)))
        except CheckpointError as error:
            raise TransferError(f"{self._connection.name} lists {error}") from error

    async def _fetch(self, wanted: Sequence[StateSlice], into: StateCopy) -> bool:
        """Fetch some parts; return whether none of them was gone."""
        self._parts.clear()
        await self._ask(FetchState(query=self._query, copy=self._copy), msgspec.json.encode(wanted))
        parts, self._parts = self._parts, []
        known = {each.file.sha256: each.file for each in wanted}
        complete = True
        for part, data in parts:
            file = known.get(part.sha256)
            if file is None:
                raise TransferError(f"{self._connection.name} sent a file that was not asked for")
            if part.gone:
                complete = False
                continue
            self.moved_bytes += len(data)
            try:
                await run_to_end(lambda file=file, at=part.offset, data=data: into.append(file, at, data))  # type: ignore[misc]
            except CheckpointError as error:
                raise TransferError(f"{self._connection.name}: {error}") from error
        return complete

    async def _ask(self, message: Request, payload: bytes = b"") -> bytes:
        # If this is cancelled, the reply still comes: it must not count as the reply to the next request.
        return await wait_out(self._answer(message, payload))

    async def _answer(self, message: Request, payload: bytes) -> bytes:
        self._reply = asyncio.get_running_loop().create_future()
        await self._connection.link.send(message, payload)
        return await self._connection.or_lost(self._reply, REPLY_S)

    def _take(self, said: StatePart | StateReply, payload: bytes) -> None:
        if isinstance(said, StatePart):
            if sum(len(data) for _, data in self._parts) + len(payload) <= SLICES_BYTES_MOST:
                self._parts.append((said, payload))
        elif self._reply is not None and not self._reply.done():
            if said.reason:
                self._reply.set_exception(TransferError(f"{self._connection.name}: {said.reason}"))
            else:
                self._reply.set_result(payload)


def batches(files: Iterable[StateFile]) -> Iterator[list[StateSlice]]:
    """Cut files into parts, and group them so that a group has at most `SLICES_BYTES_MOST`."""
    group: list[StateSlice] = []
    held_bytes = 0
    for file in files:
        for offset in range(0, max(1, file.size_bytes), SLICE_BYTES):
            size_bytes = min(SLICE_BYTES, file.size_bytes - offset)
            if held_bytes + size_bytes > SLICES_BYTES_MOST:
                yield group
                group, held_bytes = [], 0
            group.append(StateSlice(file=file, offset=offset, size_bytes=size_bytes))
            held_bytes += size_bytes
    if group:
        yield group


def _read(start: Path, wanted: StateSlice) -> bytes | None:
    try:
        with (start / wanted.file.path).open("rb") as stream:
            stream.seek(wanted.offset)
            return stream.read(wanted.size_bytes)
    except FileNotFoundError:
        return None
