"""Network namespaces named after the process that made them, so that those of a dead process can be removed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import signal
from dataclasses import dataclass
from typing import Final

from infra.clouds.processes import start_mark
from infra.wan.commands import run
from infra.wan.errors import WanError

_PREFIX: Final = "spillway-wan"
_NAME: Final = re.compile(rf"{_PREFIX}-(?P<pid>\d+)-(?P<start>\d+)-\d+-[\w-]+")
_EMPTY_S: Final = 20.0
_wans = itertools.count()


@dataclass(frozen=True, slots=True)
class NamespaceNames:
    """The names of one WAN's namespaces: ``spillway-wan-<process>-<its start>-<number>-<what>``.

    Attributes:
        prefix: what all of them begin with.
    """

    prefix: str

    @classmethod
    def new(cls) -> NamespaceNames:
        """Return names that differ from those of every other WAN and process."""
        return cls(f"{_PREFIX}-{os.getpid()}-{_start_of(os.getpid())}-{next(_wans)}")

    def of(self, what: str) -> str:
        """Return the name of the namespace of ``what``."""
        return f"{self.prefix}-{what}"


def _start_of(pid: int) -> str | None:
    """Return the tick at which the process began, since numbers are reused; None when it is not running."""
    mark = start_mark(pid)
    return None if mark is None else mark.rpartition(":")[2]


async def existing() -> list[str]:
    """Return the names of all network namespaces of this machine."""
    return [line.split()[0] for line in (await run("ip", "netns", "list")).splitlines() if line]


async def add(name: str) -> None:
    """Create a namespace and set its loopback up.

    Raises:
        WanError: it exists already, or this user may not.
    """
    await run("ip", "netns", "add", name)
    await run("ip", "-n", name, "link", "set", "lo", "up")


async def remove(name: str) -> None:
    """End all processes in a namespace, then remove it with all its devices.

    Raises:
        WanError: a process in it does not exit, or the namespace does not exist.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + _EMPTY_S
    while pids := (await run("ip", "netns", "pids", name)).split():
        if loop.time() > deadline_s:
            raise WanError(f"processes {', '.join(pids)} in {name} do not exit")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        await asyncio.sleep(0.02)
    await run("ip", "netns", "del", name)


async def sweep() -> list[str]:
    """Remove the namespaces of dead processes, and return their names."""
    swept = []
    for name in await existing():
        made = _NAME.fullmatch(name)
        if made is not None and _start_of(int(made["pid"])) != made["start"]:
            with contextlib.suppress(WanError):  # another process may be sweeping too
                await remove(name)
                swept.append(name)
    return swept
