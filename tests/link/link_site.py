"""A real host and a real gateway over loopback TLS, for the tests of the link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from infra.clock import Clock, SystemClock
from infra.link.client import HostLink, LinkLost, enrol
from infra.link.keys.certificates import Credential
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import Authority, UserData, new_token
from infra.link.server import HostServer, SessionEnded, SessionStarted
from infra.messages import PROTOCOL, AnyMessage, Completed, RunMessage
from infra.runtime import Runtime

HOST = "cloud-1"
RUNTIME = Runtime(protocol=PROTOCOL, spark="4.3.0", java="21", python="3.11", timezone="UTC", ansi=True)
DEADLINE_S = 60.0
ROWS = b"rows" * 10_000

T = TypeVar("T")
Event = tuple[str, AnyMessage | SessionStarted | SessionEnded, bytes]


async def within(work: Awaitable[T]) -> T:
    """Wait, with a deadline."""
    return await asyncio.wait_for(work, DEADLINE_S)


class Site:
    """One host and the authority of its gateway."""

    def __init__(self, authority: Authority, server: HostServer, user_data: UserData, address: tuple[str, int]) -> None:
        self.authority = authority
        self.server = server
        self.user_data = user_data
        self.address = address
        self.clock: Clock = SystemClock()
        self.links: list[HostLink] = []

    async def enrol(self) -> None:
        await within(enrol(self.address, self.authority, HOST, self.user_data.token, DEADLINE_S))

    async def link(self, session: str = "s1", *, beat_s: float = 0.05, timeout_s: float = 5.0) -> HostLink:
        """Connect, and wait until the host has noticed it."""
        link = await within(
            HostLink.connect(
                self.address,
                self.authority,
                HOST,
                session,
                clock=self.clock,
                heartbeat_s=beat_s,
                heartbeat_timeout_s=timeout_s,
            )
        )
        self.links.append(link)
        return link

    async def started(self, session: str = "s1") -> HostLink:
        link = await self.link(session)
        assert await within(self.server.receive()) == (session, SessionStarted(session), b"")
        return link


@asynccontextmanager
async def new_site(
    authority: Authority, *, enrolled: bool, directory: Path | None = None, timeout_s: float = 5.0
) -> AsyncIterator[Site]:
    user_data = UserData(host=HOST, ca_pem=authority.ca_pem, token=new_token())
    identity = HostIdentity.open(user_data, directory)
    if enrolled:
        identity.install(authority.sign(identity.csr(), HOST))
    server = HostServer(identity, user_data, RUNTIME, clock=SystemClock(), heartbeat_timeout_s=timeout_s)
    site = Site(authority, server, user_data, await server.start())
    try:
        yield site
    finally:
        for link in site.links:
            await link.close("test over")
        await server.close("test over")


def ca_of(authority: Authority) -> Credential:
    """The authority's keys as they are on its disk."""
    return Credential.from_pem((authority.folder / "ca.pem").read_bytes(), "ca.pem")


async def lost_reason(link: HostLink) -> str:
    """Read until the link ends, and return the reason."""
    while True:
        try:
            await within(link.receive())
        except LinkLost as lost:
            return lost.reason


def run(first_seq: int = 0) -> RunMessage:
    return RunMessage(query="q", epoch=1, first_seq=first_seq, last_seq=first_seq + 9, attempt=0, rows=10)


def completed(first_seq: int = 0) -> Completed:
    return Completed(
        query="q", epoch=1, first_seq=first_seq, last_seq=first_seq + 9, attempt=0, rows=10, batch_id=0, batch_s=0.1
    )


class Load:
    """Runs that go to a host one after another and come back; runs that a lost link left unanswered are sent again."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.answered: list[int] = []
        self._serving = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            session, message, payload = await self._site.server.receive()
            if isinstance(message, RunMessage):
                await self._site.server.send(session, completed(message.first_seq), payload)

    async def converse(self, link: HostLink, until_seq: int) -> None:
        """Have all runs before ``until_seq`` answered, once each."""
        while len(self.answered) * 10 < until_seq:
            await link.send(run(len(self.answered) * 10), ROWS)
            message, payload = await within(link.receive())
            if isinstance(message, Completed):
                assert payload == ROWS
                self.answered.append(message.first_seq)

    async def end(self) -> None:
        self._serving.cancel()
        await asyncio.wait([self._serving])
