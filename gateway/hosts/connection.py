"""The gateway's connection to one engine host: opens queries, and passes the host's messages to their lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from infra.link.channel import LinkLost
from infra.link.client import HostLink
from infra.messages import (
    AnyMessage,
    CloseQuery,
    Completed,
    Credit,
    DirectProgress,
    HostEnding,
    HostReady,
    IsolatingMessage,
    OpenQuery,
    QueryFailed,
    QueryReady,
    QueryRefused,
    Reclaimed,
    StatePart,
    StateReply,
)
from infra.together import await_shared

T = TypeVar("T")
Listener = Callable[[Completed | Credit | IsolatingMessage | QueryFailed | DirectProgress, bytes], None]

StateListener = Callable[[StatePart | StateReply, bytes], None]


class QueryRefusedError(Exception):
    """A host cannot open a query; the message is the host's reason."""


class Connection:
    """A live link to a host.

    Args:
        name: the lane's name: ``home``, or the VM's name.
        link: an open link.

    Attributes:
        suspects: the queries that may have ended the host, according to the host or to the gateway.
        tables: the fingerprints of the versions of static tables that the host has.
        sending_tables: held while a version is sent, so that none is sent twice.
        shared: whether several queries of the private cluster run there, so that none may exhaust its memory.
    """

    def __init__(self, name: str, link: HostLink) -> None:
        self.name = name
        self.link = link
        self.suspects: tuple[str, ...] = ()
        self.tables = set(link.hello.tables)
        self.sending_tables = asyncio.Lock()
        self.shared = False
        self._ready = asyncio.Event()
        if link.hello.ready:
            self._ready.set()
        self._opening: dict[tuple[str, int], asyncio.Future[QueryReady]] = {}
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._state_listeners: dict[str, tuple[str, StateListener]] = {}
        self._reclaimed: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        if link.hello.reclaimed_in_s is not None:
            self._reclaimed.set_result(max(0.0, link.hello.reclaimed_in_s))
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pump = asyncio.create_task(self._receive(), name=f"receive from {name}")

    async def wait_ready(self, deadline_s: float) -> None:
        """Return once the host has warmed up.

        Raises:
            LinkLost: the link was lost before.
            TimeoutError: it took longer than ``deadline_s``.
        """
        await self.or_lost(asyncio.ensure_future(self._ready.wait()), deadline_s)

    async def open_query(self, message: OpenQuery, listener: Listener, deadline_s: float) -> QueryReady:
        """Open a query; the host's messages about it go to ``listener`` from then on.

        Raises:
            QueryRefusedError: the host refuses.
            LinkLost: the link was lost.
            TimeoutError: no answer within ``deadline_s``.
        """
        key = (message.query, message.epoch)
        answer: asyncio.Future[QueryReady] = asyncio.get_running_loop().create_future()
        self._opening[key] = answer
        self.listen(*key, listener)
        try:
            await self.link.send(message)
            return await self.or_lost(answer, deadline_s)
        except BaseException:
            self._listeners.pop(key, None)
            raise
        finally:
            self._opening.pop(key, None)

    def listen(self, query: str, epoch: int, listener: Listener) -> None:
        """Let ``listener`` have what the host says of a query from now on."""
        self._listeners[query, epoch] = listener

    def listen_for_state(self, query: str, copy: str, listener: StateListener) -> None:
        """Let ``listener`` have what the host says of one copy of the query's state, and of no other, from now on."""
        self._state_listeners[query] = copy, listener

    async def close_query(self, query: str, epoch: int, *, listens_on: bool = False, after_batch: bool = False) -> None:
        """Let the host stop a query; its messages are ignored from now on, unless somebody ``listens_on``.

        ``after_batch``: see ``CloseQuery``.
        """
        if not listens_on:
            self._listeners.pop((query, epoch), None)
        await self.link.send(CloseQuery(query=query, epoch=epoch, after_batch=after_batch))

    @property
    def alive(self) -> bool:
        """Whether the link is open."""
        return not self._lost.done()

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the link is lost; callbacks that were added first run before waiters of ``lost``."""
        self._lost.add_done_callback(lambda _: callback())

    async def lost(self) -> str:
        """Return why the link was lost, once it is."""
        return await await_shared(self._lost)

    async def reclaimed(self) -> float:
        """Return in how many seconds the provider reclaims the host's VM, once it has announced that."""
        return await await_shared(self._reclaimed)

    async def close(self, reason: str) -> None:
        """Close the link; the host keeps running."""
        await self.link.close(reason)
        await self._pump

    async def or_lost(self, wanted: asyncio.Future[T], deadline_s: float) -> T:
        """Return what ``wanted`` gets from the host.

        Raises:
            LinkLost: the link was lost before.
            TimeoutError: it took longer than ``deadline_s``.
        """
        either: list[asyncio.Future[Any]] = [wanted, self._lost]
        try:
            done, _ = await asyncio.wait(either, timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
            if wanted in done:
                return wanted.result()
        finally:
            wanted.cancel()
        if self._lost in done:
            raise LinkLost(self._lost.result())
        raise TimeoutError(f"{self.name} did not answer within {deadline_s:g} s")

    async def _receive(self) -> None:
        reason = "the gateway stopped receiving"
        try:
            while True:
                message, payload = await self.link.receive()
                self._dispatch(message, payload)
        except LinkLost as error:
            reason = str(error)
        except ValueError as error:
            reason = f"{self.name} sent an invalid message: {error}"
        finally:
            self._lost.set_result(reason)
            await self.link.close(reason)

    def _dispatch(self, message: AnyMessage, payload: bytes) -> None:
        match message:
            case HostReady():
                self._ready.set()
            case Reclaimed():
                if not self._reclaimed.done():
                    self._reclaimed.set_result(max(0.0, message.in_s))
            case HostEnding():
                self.suspects = message.suspects
            case QueryReady() | QueryRefused():
                answer = self._opening.get((message.query, message.epoch))
                if answer is None or answer.done():
                    return
                if isinstance(message, QueryReady):
                    self.tables.difference_update(message.removed_tables)
                    answer.set_result(message)
                else:
                    answer.set_exception(QueryRefusedError(f"{self.name} refuses {message.query}: {message.reason}"))
            case Completed() | Credit() | IsolatingMessage() | QueryFailed() | DirectProgress():
                # An answer of another epoch belongs to a query that this gateway did not open, or has closed.
                listener = self._listeners.get((message.query, message.epoch))
                if listener is not None:
                    listener(message, payload)
            case StatePart() | StateReply():
                copy, listen = self._state_listeners.get(message.query, ("", None))
                if listen is not None and copy == message.copy:
                    listen(message, payload)
            case _:
                raise LinkLost(f"{self.name} sent {type(message).__name__}, which only a gateway may send")
