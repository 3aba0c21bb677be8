"""An engine host without Spark, in a separate process: it opens a query and sends each run back, or loses it.

Usage: python echo_host.py USER_DATA IDENTITY_FOLDER SEED PART; it loses a PART of its answers, doubles a PART and
delays a PART. Prints its port.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pyarrow as pa

from infra.clock import SystemClock
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import UserData
from infra.link.server import HostServer
from infra.messages import PROTOCOL, Completed, Credit, OpenQuery, QueryPlan, QueryReady, RunMessage
from infra.payload import CodecPolicy, Decoder, Encoder
from infra.runtime import Runtime
from tests.support.gateway_doubles import INPUT, RESULT

RUNTIME = Runtime(protocol=PROTOCOL, spark="4.3.0", java="21", python="3.11", timezone="UTC", ansi=True)
PLAN = QueryPlan(switch_class="stateless", switchable=True, narrow=True)


class EchoHost:
    """Answers over a real link, with the faults that the arguments request.

    Args:
        server: its end.
        chance: decides which answers get which fault.
        part: of the answers, for each fault.
        schema: of the events.
        result: of their answers, which have the same columns by other names.
        credit_bytes: how many payload bytes may be on their way to it.
    """

    def __init__(
        self,
        server: HostServer,
        chance: random.Random,
        part: float,
        *,
        schema: pa.Schema = INPUT,
        result: pa.Schema = RESULT,
        credit_bytes: int = 1 << 20,
    ) -> None:
        self._server = server
        self._chance = chance
        self._part = part
        self._schema, self._result, self._credit_bytes = schema, result, credit_bytes
        self._decoder = Decoder(schema)
        self._encoder = Encoder(result, codecs=CodecPolicy.parse("none"))
        self._batches = 0
        self._held: list[tuple[str, Completed, bytes]] = []

    async def serve(self) -> None:
        """Serve until killed."""
        while True:
            session, message, payload = await self._server.receive()
            if isinstance(message, OpenQuery):
                self._decoder = Decoder(self._schema)
                await self._server.send(session, self._ready(message))
            elif isinstance(message, RunMessage):
                await self._take(session, message, payload)

    async def work(self, events: pa.RecordBatch) -> pa.RecordBatch:
        """Return the answers of a run."""
        return pa.RecordBatch.from_arrays(events.columns, schema=self._result)

    def _ready(self, asked: OpenQuery) -> QueryReady:
        return QueryReady(
            query=asked.query,
            epoch=asked.epoch,
            input_schema=self._schema.serialize().to_pybytes(),
            result_schema=self._result.serialize().to_pybytes(),
            plan=PLAN,
            credit_bytes=self._credit_bytes,
        )

    async def _take(self, session: str, run: RunMessage, payload: bytes) -> None:
        events = self._decoder.decode(payload)
        encoded = self._encoder.encode(await self.work(events))
        self._batches += 1
        completed = Completed(
            query=run.query,
            epoch=run.epoch,
            first_seq=run.first_seq,
            last_seq=run.last_seq,
            attempt=run.attempt,
            rows=encoded.rows,
            batch_id=self._batches,
            batch_s=0.001,
        )
        await self._server.send(session, Credit(query=run.query, epoch=run.epoch, bytes=len(payload)))
        answer = (session, completed, encoded.payload)
        dice = self._chance.random() / self._part if self._part else 3.0
        if dice < 1:
            return
        if dice < 2:
            self._held.append(answer)
        else:
            for _ in range(2 if dice < 3 else 1):
                await self._server.send(*answer)
        if self._held and self._chance.random() < 0.5:
            await self._server.send(*self._held.pop(0))


async def main(user_data: UserData, folder: Path, seed: int, part: float) -> None:
    server = HostServer(HostIdentity.open(user_data, folder), user_data, RUNTIME, clock=SystemClock())
    _, port = await server.start()
    server.ready = True
    print(port, flush=True)
    await EchoHost(server, random.Random(seed), part).serve()


if __name__ == "__main__":
    told = UserData.from_json(Path(sys.argv[1]).read_text())
    asyncio.run(main(told, Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
