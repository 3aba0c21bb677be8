"""An engine host without Spark: it opens any query on ``SCHEMA`` and sends each run back as its result.

It has the arguments of ``python -m engines.worker``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path

import pyarrow as pa

from infra.clock import SystemClock
from infra.link.keys.identity import HostIdentity
from infra.link.keys.secret_files import write_private
from infra.link.keys.trust import UserData
from infra.link.server import HostServer
from infra.messages import PROTOCOL, Completed, Credit, OpenQuery, QueryPlan, QueryReady, RunMessage
from infra.payload import CodecPolicy, Decoder, Encoder
from infra.runtime import Runtime

DDL = "at BIGINT, text STRING"
SCHEMA = pa.schema({"at": pa.int64(), "text": pa.string()})
_CREDIT_BYTES = 16 << 20
_RUNTIME = Runtime(protocol=PROTOCOL, spark="", java="", python="", timezone="UTC", ansi=True)


async def main(user_data: UserData, workdir: Path) -> None:
    """Serve until killed."""
    server = HostServer(HostIdentity.open(user_data, workdir / "identity"), user_data, _RUNTIME, clock=SystemClock())
    address, port = await server.start()
    server.ready = True
    told = {"host": user_data.host, "pid": os.getpid(), "address": address, "port": port, "started": 0.0}
    write_private(workdir / "host.json", json.dumps(told).encode())
    decoder, encoder = Decoder(SCHEMA), Encoder(SCHEMA, codecs=CodecPolicy.parse("none"))
    batch_id = 0
    while True:
        session, message, payload = await server.receive()
        if isinstance(message, OpenQuery):
            await server.send(session, _ready(message))
        elif isinstance(message, RunMessage):
            batch_id += 1
            results = encoder.encode(decoder.decode(payload))
            await server.send(session, Credit(query=message.query, epoch=message.epoch, bytes=len(payload)))
            await server.send(session, _completed(message, results.rows, batch_id), results.payload)


def _ready(asked: OpenQuery) -> QueryReady:
    schema = SCHEMA.serialize().to_pybytes()
    return QueryReady(
        query=asked.query,
        epoch=asked.epoch,
        input_schema=schema,
        result_schema=schema,
        plan=QueryPlan(switch_class="stateless", switchable=True, narrow=True),
        credit_bytes=_CREDIT_BYTES,
    )


def _completed(run: RunMessage, rows: int, batch_id: int) -> Completed:
    return Completed(
        query=run.query,
        epoch=run.epoch,
        first_seq=run.first_seq,
        last_seq=run.last_seq,
        attempt=run.attempt,
        rows=rows,
        batch_id=batch_id,
        batch_s=0.001,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--user-data", type=Path)
    parser.add_argument("--workdir", type=Path)
    given, _ = parser.parse_known_args()
    asyncio.run(main(UserData.from_json(given.user_data.read_bytes()), given.workdir))
