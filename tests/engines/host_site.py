"""A real host process and the gateway's end of its link."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec
import psutil
import pyarrow as pa

from engines.hostfacts import HostFile
from infra.clock import SystemClock
from infra.link.client import HostLink, enrol
from infra.link.keys.trust import Authority, UserData, new_token
from infra.messages import (
    AnyMessage,
    Completed,
    Credit,
    HostReady,
    OffsetRange,
    OpenQuery,
    QueryReady,
    QueryRefused,
    RunMessage,
)
from infra.payload.codecs.policy import CodecPolicy
from infra.payload.decoder import Decoder
from infra.payload.encoder import Encoder

DEADLINE_S = 120.0
M = TypeVar("M")


@dataclass
class HostProcess:
    process: subprocess.Popen[bytes]
    file: HostFile
    authority: Authority
    sessions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[Gateway]:
        name = f"s{next(self.sessions)}-{os.getpid()}"
        address = (self.file.address, self.file.port)
        link = await HostLink.connect(address, self.authority, self.file.host, name, clock=SystemClock())
        try:
            yield Gateway(link)
        finally:
            await link.close("the test is done")

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@dataclass
class Gateway:
    link: HostLink
    others: list[AnyMessage] = field(default_factory=list)

    async def until_ready(self) -> None:
        if not self.link.hello.ready:
            await self.expect(HostReady)

    async def expect(self, kind: type[M]) -> tuple[M, bytes]:
        """Return the next message of a kind; others are kept in ``others``."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                message, payload = await self.link.receive()
                if isinstance(message, kind):
                    return message, payload
                self.others.append(message)

    async def credit(self) -> int:
        """Return the bytes of the next credit, which may have arrived already."""
        kept = next((each for each in self.others if isinstance(each, Credit)), None)
        if kept is not None:
            self.others.remove(kept)
            return kept.bytes
        return (await self.expect(Credit))[0].bytes

    async def open(self, spec: OpenQuery) -> OpenedHere:
        await self.link.send(spec)
        return await self.opened(spec)

    async def opened(self, spec: OpenQuery) -> OpenedHere:
        """Return a query that the host was asked to open, once it is open."""
        ready, _ = await self.expect(QueryReady | QueryRefused)  # type: ignore[arg-type]
        assert isinstance(ready, QueryReady), ready
        return OpenedHere(self, spec, ready)


class OpenedHere:
    """A query as its gateway sees it."""

    def __init__(self, gateway: Gateway, spec: OpenQuery, ready: QueryReady) -> None:
        self.gateway = gateway
        self.spec = spec
        self.ready = ready
        self.input_schema = pa.ipc.read_schema(pa.py_buffer(ready.input_schema))
        self.result_schema = pa.ipc.read_schema(pa.py_buffer(ready.result_schema))
        needed = ready.plan.needed_schema
        self.encoder = Encoder(
            self.input_schema,
            needed=None if needed is None else pa.ipc.read_schema(pa.py_buffer(needed)),
            predicates=ready.plan.predicates,
            codecs=CodecPolicy("zstd"),
        )
        self.decoder = Decoder(self.result_schema)
        self.sent_bytes: list[int] = []

    async def send(self, first_seq: int, rows: Sequence[dict[str, object]] | pa.RecordBatch, attempt: int = 0) -> None:
        batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(list(rows), self.input_schema)
        encoded = self.encoder.encode(batch)
        await self.send_payload(first_seq, encoded.rows, encoded.payload, rows=batch.num_rows, attempt=attempt)

    async def send_payload(
        self, first_seq: int, encoded_rows: int, payload: bytes, *, rows: int = 0, attempt: int = 0
    ) -> None:
        run = RunMessage(
            query=self.spec.query,
            epoch=self.spec.epoch,
            first_seq=first_seq,
            last_seq=first_seq + (rows or encoded_rows) - 1,
            attempt=attempt,
            rows=encoded_rows,
        )
        self.sent_bytes.append(len(payload))
        await self.gateway.link.send(run, payload)

    async def refer(self, first_seq: int, *ranges: OffsetRange) -> None:
        """Send a run by reference."""
        count = sum(each.end - each.begin for each in ranges)
        run = RunMessage(
            query=self.spec.query,
            epoch=self.spec.epoch,
            first_seq=first_seq,
            last_seq=first_seq + count - 1,
            attempt=0,
            rows=count,
            ranges=ranges,
            cost_bytes=1,
        )
        await self.gateway.link.send(run)

    async def completed(self, count: int) -> list[tuple[Completed, pa.RecordBatch]]:
        found = []
        for _ in range(count):
            message, payload = await self.gateway.expect(Completed)
            found.append((message, self.decoder.decode(payload)))
        return found


@asynccontextmanager
async def host_process(
    folder: Path,
    *,
    master: str = "local[2]",
    orphan_after_s: float = 300.0,
    extra: Sequence[str] = (),
    spark_conf: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[HostProcess]:
    """Start ``python -m engines.worker``, wait until it listens, and enrol it; its session is killed afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority.open(folder / "trust")
    token = new_token()
    told = UserData(host="host-1", ca_pem=authority.ca_pem, token=token, orphan_after_s=orphan_after_s)
    (folder / "user-data.json").write_text(told.with_spark_conf(spark_conf).to_json())
    workdir = folder / "work"
    command = [sys.executable, "-m", "engines.worker", "--user-data", str(folder / "user-data.json")]
    command += ["--workdir", str(workdir), "--master", master, *extra]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (workdir / "host.json").exists():
                assert process.poll() is None, (folder / "log").read_text()
                await asyncio.sleep(0.05)
            file = msgspec.json.decode((workdir / "host.json").read_bytes(), type=HostFile)
            await enrol((file.address, file.port), authority, "host-1", token, 30.0)
        yield HostProcess(process, file, authority)
    finally:
        log.close()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
