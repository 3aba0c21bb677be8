"""Conversations between two sites, for the tests of the WAN."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from pathlib import Path

from infra.wan import WanSite

IMAGE = Path(__file__).parents[2] / "build" / "wan"
PEER = str(Path(__file__).parent / "wan_peer.py")
DEADLINE_S = 60.0


async def said(process: Process) -> str:
    """Return the next line that a program prints."""
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        line = await process.stdout.readline()
    assert line, f"the program ended with {await process.wait()}"
    return line.decode().strip()


async def peer(site: WanSite, *arguments: str) -> Process:
    return await site.run(sys.executable, PEER, *arguments, stdin=PIPE, stdout=PIPE)


async def ended(*processes: Process) -> None:
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@dataclass
class Ways:
    """How long a line took in each direction."""

    up_s: float
    down_s: float

    @property
    def round_trip_s(self) -> float:
        return self.up_s + self.down_s


class Conversation:
    """An open TCP connection from one site to another."""

    def __init__(self, asks: Process, answers: Process) -> None:
        self._asks = asks
        self._answers = answers

    @classmethod
    async def open(cls, near: WanSite, far: WanSite) -> Conversation:
        answers = await peer(far, "echo")
        asks = await peer(near, "ask", far.address, await said(answers))
        assert await said(asks) == "connected"
        return cls(asks, answers)

    def ask(self, text: str) -> None:
        assert self._asks.stdin is not None
        self._asks.stdin.write(f"{text}\n".encode())

    async def heard(self) -> str:
        """Return what the far site receives next."""
        return await said(self._answers)

    async def answered(self) -> Ways:
        return Ways(**json.loads(await said(self._asks)))

    async def quickest(self, times: int = 10) -> Ways:
        """Ask several times and return the fastest of each direction, without the effect of other work here."""
        ways = []
        for number in range(times):
            self.ask(str(number))
            assert await self.heard() == str(number)
            ways.append(await self.answered())
        return Ways(min(way.up_s for way in ways), min(way.down_s for way in ways))

    async def close(self) -> None:
        await ended(self._asks, self._answers)


async def goodput_bits_per_s(sender: WanSite, receiver: WanSite) -> float:
    """Return what one TCP stream carries in its first seconds."""
    sink = await peer(receiver, "sink")
    flood = await peer(sender, "flood", receiver.address, await said(sink))
    measured = float(await said(sink))
    await ended(sink, flood)
    return measured


@dataclass
class Pings:
    """The report of ``ping``."""

    received: int
    quickest_s: float | None


async def pinged(near: WanSite, far: WanSite, count: int, *, every_s: float = 0.005, wait_s: float = 5.0) -> Pings:
    """Ping often, which only root may do."""
    command = ("ping", "-n", "-q", "-c", str(count), "-i", str(every_s), "-W", str(wait_s), far.address)
    process = await near.run(*command, stdout=PIPE)
    async with asyncio.timeout(DEADLINE_S + (0.05 + every_s) * count):
        out, _ = await process.communicate()
    received = re.search(r"(\d+) received", out.decode())
    assert received is not None, out
    quickest = re.search(r"= ([\d.]+)/", out.decode())
    return Pings(int(received[1]), float(quickest[1]) / 1e3 if quickest else None)
