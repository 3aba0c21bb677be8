"""Results as messages of an MQTT broker: at least once, each with an id that stays the same when it is sent again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from gateway.config.connectors.mqtt import MqttSinkConfig
from gateway.connectors.mqttbroker import Broker, broker_of
from gateway.connectors.mqttclient import BrokerError, MqttClient, speaks_no_5
from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.sinks.base import ReleasedRows, SinkError, SinkUnavailableError
from gateway.sinks.progress import ProgressFile
from gateway.sinks.rows import json_rows
from infra.clienttls import BadTlsFilesError
from infra.failpoints import reached
from infra.statefiles import StateError
from infra.threads import run_to_end

# The most that a PUBLISH contains besides topic, id and payload.
_PACKET_HEAD_BYTES: Final = 64


class MqttSink:
    """One message per result row, as JSON; see ``Sink``.

    The user property ``spillway-id`` is ``<owner>-<first seq>-<last seq>-<row>``, with rows counted from 0 in the
    results of that run. A run counts as delivered once the broker has acknowledged all its rows; an incomplete one is
    sent again as a whole.

    Args:
        config: the sink's config.
        progress: what is delivered.
        query: its name.
        owner: identity of the state that numbers the seqs.
    """

    def __init__(self, config: MqttSinkConfig, progress: ProgressFile, *, query: str, owner: str) -> None:
        self._config = config
        self._progress = progress
        self._owner = owner
        self._client_id = f"spillway-{query}-{owner}-out"
        self._broker: Broker | None = None
        self._client: MqttClient | None = None

    @property
    def client(self) -> MqttClient | None:
        """The connection; None before the first results and after a failure."""
        return self._client

    @property
    def committed(self) -> IntervalSet:
        """See ``Sink.committed``."""
        return self._progress.committed

    async def open(self) -> None:
        """See ``Sink.open``; the broker is only contacted when there are results."""
        try:
            self._broker = await run_to_end(lambda: broker_of(self._config))
        except BadTlsFilesError as error:
            raise StateError(str(error)) from error
        await self._progress.open()

    async def commit(self, releases: Sequence[ReleasedRows], source: Position) -> None:  # noqa: ARG002 - kept in the state_dir
        """See ``Sink.commit``."""
        wanted = [r for r in releases if not self._progress.delivered.covers(r.first_seq, r.last_seq)]
        reached("sink.commit.prepared")
        try:
            await self._deliver(wanted)
        except BrokerError as error:
            await self._disconnect()
            raise SinkUnavailableError(str(error)) from error
        reached("sink.commit.visible")
        await self._progress.save()

    async def _deliver(self, releases: Sequence[ReleasedRows]) -> None:
        """Send all rows, several in flight, and note each run when the broker has acknowledged all of it."""
        open_runs: deque[tuple[ReleasedRows, list[asyncio.Future[str]]]] = deque()
        for release in releases:
            answers: list[asyncio.Future[str]] = []
            payloads = await run_to_end(partial(json_rows, release.item))
            for number, payload in enumerate(payloads):
                row_id = f"{self._owner}-{release.first_seq}-{release.last_seq}-{number}"
                client = await self._connected()
                self._check_size(client, payload, row_id)
                answers.append(await client.send(self._config.topic, payload, self._config.qos, row_id))
            open_runs.append((release, answers))
            while open_runs and all(answer.done() for answer in open_runs[0][1]):
                await self._settle(*open_runs.popleft())
        for release, answers in open_runs:
            await self._settle(release, answers)

    async def _settle(self, release: ReleasedRows, answers: Sequence[asyncio.Future[str]]) -> None:
        for answer in answers:
            refusal = await answer
            if refusal:
                raise BrokerError(
                    f"{self._broker} did not accept a result for {self._config.topic} ({refusal}): "
                    "check that this user may publish there"
                )
        self._progress.note(release.first_seq, release.last_seq)

    async def _connected(self) -> MqttClient:
        if self._client is not None and not self._client.lost:
            return self._client
        assert self._broker is not None, "the sink is open"
        self._client = None
        client = MqttClient(self._broker, self._client_id, session_s=0)
        try:
            await client.__aenter__()
        except BrokerError as error:
            if speaks_no_5(error):
                raise SinkError(
                    f"{self._broker} does not support MQTT 5, which carries the ids of results: give another broker"
                ) from error
            raise
        self._client = client
        if client.limits.qos_max < self._config.qos:
            raise SinkError(f"{self._broker} takes no QoS {self._config.qos}: give another broker, or allow it there")
        return client

    def _check_size(self, client: MqttClient, payload: bytes, row_id: str) -> None:
        most = client.limits.packet_bytes_max
        size_bytes = _PACKET_HEAD_BYTES + len(self._config.topic.encode()) + len(row_id) + len(payload)
        if most is not None and size_bytes > most:
            raise SinkError(
                f"result {row_id} takes {size_bytes} bytes, and {self._broker} takes at most {most} in a message: "
                "reduce the query's rows, or raise the broker's limit"
            )

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(None, None, None)

    async def close(self) -> None:
        """See ``Sink.close``."""
        await self._disconnect()
