"""A VM that serves requests about state, in this process: the host's own code behind a link without a network."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

from engines.statecopies import StateCopies
from gateway.hosts.connection import Connection
from infra.link.client import HostLink
from infra.messages import AnyMessage, StateMessage, StatePart, StateReply
from tests.support.gateway_doubles import FakeLink


class CopyingLink(FakeLink):
    """A link to a VM's `StateCopies`.

    Args:
        workdir: of the VM's host.

    Attributes:
        before: what happens before the host gets a message, by the name of its class.
        dies_after: after so many more messages the link is lost; None for never.
    """

    def __init__(self, workdir: Path) -> None:
        super().__init__()
        self.workdir = workdir
        self.copies = StateCopies(workdir, asyncio.get_running_loop(), self._answered)
        self.before: dict[str, Callable[[], object]] = {}
        self.dies_after: int | None = None

    async def send(self, message: AnyMessage, payload: bytes = b"") -> None:
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                self.lose("kill -9")
        await super().send(message, payload)
        self.before.get(type(message).__name__, lambda: None)()
        if isinstance(message, StateMessage):
            self.copies.take("session", message, bytes(payload))

    async def _answered(self, _session: str, said: StatePart | StateReply, payload: bytes) -> bool:
        self.say(said, bytes(payload))
        return True


class CopyingVm:
    """A VM with its connection.

    Args:
        workdir: of its host.
    """

    def __init__(self, workdir: Path) -> None:
        workdir.mkdir(parents=True)
        self.link = CopyingLink(workdir)
        self.connection = Connection("vm-1", cast("HostLink", self.link))

    async def close(self) -> None:
        self.link.copies.close()
        await self.connection.close("done")


def offsets(seq: int) -> bytes:
    """Return Spark's file about a micro-batch that ends before this seq."""
    return b'v1\n{}\n{"at": %d}' % seq


def write(start: Path, files: dict[str, bytes]) -> None:
    """Add files to the folder of a start, with a committed micro-batch."""
    for path, data in {"offsets/0": offsets(20), "commits/0": b"v1", **files}.items():
        (start / path).parent.mkdir(parents=True, exist_ok=True)
        (start / path).write_bytes(data)


def contents(folder: Path) -> dict[str, str]:
    """Return the fingerprint of each file below a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
