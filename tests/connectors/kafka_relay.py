"""A broker behind a relay that can lose requests and answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from tests.connectors.kafka_broker import Broker
from tests.connectors.ports import free_ports

END_TXN = 26
Mishap = Literal["lose request", "lose answer", "hold request"]


class RelayedBroker(Broker):
    """A broker with one more listener, which clients reach through the relay.

    Attributes:
        relayed_brokers: host:port for clients that go through the relay.
        inner_port: where the relay reaches the broker.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.inner_port, self.relay_port = free_ports(2)
        self.relayed_brokers = f"127.0.0.1:{self.relay_port}"
        lines = []
        for line in self._settings.read_text().splitlines():
            if line.startswith("listeners="):
                line += f",RELAYED://127.0.0.1:{self.inner_port}"
            elif line.startswith("advertised.listeners="):
                line += f",RELAYED://{self.relayed_brokers}"
            elif line.startswith("listener.security.protocol.map="):
                line += ",RELAYED:PLAINTEXT"
            lines.append(line)
        lines.append("transaction.abort.timed.out.transaction.cleanup.interval.ms=200")
        self._settings.write_text("\n".join(lines) + "\n")


class Relay:
    """Passes frames on, until the test requests a fault.

    Args:
        listen: the relay's port.
        target: the broker's port.

    Attributes:
        frames: how many requests it has passed on.
        happened: set when the requested fault has happened.
        release: lets a held request continue.
        lose_each: every ``lose_each``-th request is lost with its connection; 0 loses none.
    """

    def __init__(self, listen: int, target: int) -> None:
        self._listen = listen
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._mishap: tuple[Mishap, int, bool] | None = None
        self._down = False
        self.frames = 0
        self.happened = asyncio.Event()
        self.release = asyncio.Event()
        self.lose_each = 0

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._listen)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.release.set()
        self._drop_all()
        await self._server.wait_closed()

    def arm(self, mishap: Mishap, api_key: int, *, then_down: bool = False) -> None:
        """Apply a fault to the next request of a kind; with ``then_down``, refuse connections afterwards."""
        self._mishap = (mishap, api_key, then_down)
        self.happened.clear()
        self.release.clear()

    def up(self) -> None:
        """Accept connections again."""
        self._down = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._down:
            writer.close()
            return
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        both = (writer, broker_writer)
        self._writers.update(both)
        swallow: asyncio.Queue[None] = asyncio.Queue(1)
        answers = asyncio.create_task(_pass_answers(broker_reader, writer, swallow))
        try:
            await self._requests(reader, broker_writer, swallow)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one side has gone: so does the other
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            for each in both:
                each.close()
            self._writers.difference_update(both)

    async def _requests(
        self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter, swallow: asyncio.Queue[None]
    ) -> None:
        while True:
            frame = await _frame(reader)
            self.frames += 1
            if self.lose_each and self.frames % self.lose_each == 0:
                return
            armed = self._mishap
            if armed is None or int.from_bytes(frame[4:6], "big") != armed[1]:
                broker.write(frame)
                continue
            mishap, _, then_down = armed
            self._mishap = None
            if mishap == "hold request":
                self.happened.set()
                await self.release.wait()
                broker.write(frame)
                continue
            if mishap == "lose answer":
                swallow.put_nowait(None)
                broker.write(frame)
                await swallow.join()
            self._down = then_down
            if then_down:
                self._drop_all()
            self.happened.set()
            return

    def _drop_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


async def _pass_answers(
    broker: asyncio.StreamReader, client: asyncio.StreamWriter, swallow: asyncio.Queue[None]
) -> None:
    """Pass answers on, except the next one if ``swallow`` is not empty."""
    try:
        while True:
            frame = await _frame(broker)
            if swallow.empty():
                client.write(frame)
            else:
                swallow.get_nowait()
                swallow.task_done()
    except (OSError, asyncio.IncompleteReadError):
        client.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """Read one length-prefixed request or answer, including its prefix."""
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "big"))
