"""Copies of stateful queries' checkpoints on a VM: receives them, and sends them back."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import re
import shutil
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engines.query.reasons import why
from engines.streaming import checkpoints
from engines.streaming.checkpoints import CheckpointError
from engines.streaming.statefiles import (
    SLICES_BYTES_MOST,
    StateCopy,
    StateFile,
    StateListing,
    StateSlice,
    packed,
    unpacked,
)
from infra.messages import (
    FetchState,
    InstallState,
    ListState,
    OfferState,
    OpenQuery,
    StateEnd,
    StateMessage,
    StatePart,
    StateReply,
    state_folder,
)

_log = logging.getLogger("spillway.host")

Send = Callable[[str, StatePart | StateReply, bytes], Coroutine[Any, Any, bool]]


@dataclass(frozen=True, slots=True)
class HostPlaces:
    """Where this host has what a query needs.

    Attributes:
        workdir: the host's working folder.
        code_path: the user's code, if it was sent to this machine; else empty.
        tables: the folder of the versions of static tables.
    """

    workdir: Path
    code_path: str
    tables: Path

    def found_here(self, spec: OpenQuery) -> OpenQuery:
        """Return the query to open, with the paths here of its code, its tables and the copy of its state."""
        found = {"tables_path": str(self.tables) if spec.tables else ""}
        if self.code_path and spec.code_path:
            found["code_path"] = self.code_path
        if spec.checkpoint_dir and not Path(spec.checkpoint_dir).is_absolute():
            folder = (self.workdir / spec.checkpoint_dir).absolute()
            folder.parent.mkdir(parents=True, exist_ok=True)
            found["checkpoint_dir"] = str(folder)
        return msgspec.structs.replace(spec, **found)


class StateCopies:
    """The copies on one host. Requests are served one after the other, on a thread of its own.

    Args:
        workdir: the host's working folder.
        loop: the event loop of ``send``.
        send: the link's method; it returns False when the session is gone.
    """

    def __init__(self, workdir: Path, loop: asyncio.AbstractEventLoop, send: Send) -> None:
        self._workdir = workdir
        self._loop = loop
        self._send = send
        self._threads = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="state")
        self._arriving: dict[Path, dict[str, StateFile]] = {}
        self._trouble = ""
        self._listings: dict[Path, StateListing] = {}

    def take(self, session: str, message: StateMessage, payload: bytes) -> None:
        """Serve a request in its turn."""
        self._threads.submit(self._serve, session, message, payload)

    def close(self) -> None:
        """Serve no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _serve(self, session: str, message: StateMessage, payload: bytes) -> None:
        def send(said: StatePart | StateReply, data: bytes) -> None:
            asyncio.run_coroutine_threadsafe(self._send(session, said, data), self._loop).result()

        reply = StateReply(query=message.query, copy=message.copy)
        try:
            folder = self._folder(message)
            if isinstance(message, StatePart):
                self._append(folder, message, payload)
                return
            if isinstance(message, FetchState):
                for part, data in self._parts(folder, message, payload):
                    send(part, data)
                answer = b""
            else:
                answer = self._answer(folder, message, payload)
        except (CheckpointError, OSError, ValueError) as error:
            _log.warning("the state of query %s: %s", message.query, why(error))
            send(msgspec.structs.replace(reply, reason=why(error)), b"")
        else:
            send(reply, answer)

    def _folder(self, message: StateMessage) -> Path:
        if (
            not re.fullmatch(r"[0-9a-f]{1,64}", message.copy)
            or "/" in message.query
            or message.query in ("", ".", "..")
        ):
            raise CheckpointError(f"{message.query!r}, {message.copy!r} is no name of a copy")
        return self._workdir / state_folder(message.query, message.copy)

    def _answer(self, folder: Path, message: StateMessage, payload: bytes) -> bytes:
        match message:
            case OfferState():
                files = unpacked(payload)
                self._arriving[folder] = {file.sha256: file for file in files}
                self._trouble = ""
                return msgspec.json.encode([file.sha256 for file in StateCopy(folder).missing(files)])
            case StateEnd():
                if self._trouble:
                    raise CheckpointError(self._trouble)
                return b""
            case InstallState():
                self._forget_others(folder)
                copy = StateCopy(folder)
                copy.install(unpacked(payload))
                copy.clear()
                return b""
            case ListState():
                return packed(self._listing(folder).files())
            case _:
                raise CheckpointError(f"{type(message).__name__} is no request about state")

    def _append(self, folder: Path, part: StatePart, data: bytes) -> None:
        """Take a part; what goes wrong is reported at the end of the parts."""
        try:
            file = self._arriving.get(folder, {}).get(part.sha256)
            if file is None:
                self._trouble = self._trouble or f"{part.sha256} was not announced"
            else:
                StateCopy(folder).append(file, part.offset, data)
        except (CheckpointError, OSError) as error:
            self._trouble = self._trouble or why(error)

    def _parts(self, folder: Path, message: FetchState, payload: bytes) -> Iterator[tuple[StatePart, bytes]]:
        wanted = msgspec.json.decode(payload, type=list[StateSlice])
        if sum(each.size_bytes for each in wanted) > SLICES_BYTES_MOST:
            raise CheckpointError(f"more than {SLICES_BYTES_MOST} bytes were asked for at once")
        start = self._start(folder)
        listed = {(file.path, file.sha256) for file in self._listing(folder).listed}
        for each in wanted:
            if (each.file.path, each.file.sha256) not in listed:
                raise CheckpointError(f"{each.file.path} was not listed")
            part = StatePart(query=message.query, copy=message.copy, sha256=each.file.sha256, offset=each.offset)
            try:
                with (start / each.file.path).open("rb") as stream:
                    stream.seek(each.offset)
                    yield part, stream.read(each.size_bytes)
            except FileNotFoundError:
                yield msgspec.structs.replace(part, gone=True), b""

    def _listing(self, folder: Path) -> StateListing:
        start = self._start(folder)
        return self._listings.setdefault(start, StateListing(start))

    def _start(self, folder: Path) -> Path:
        start = checkpoints.newest(folder)
        if start is None:
            raise CheckpointError("there is no checkpoint of the query here")
        return start

    def _forget_others(self, folder: Path) -> None:
        """Remove what earlier moves of this query left."""
        copy = folder.parent
        for other in copy.parent.iterdir():
            if other != copy:
                shutil.rmtree(other)
