"""An engine host without Spark: it opens any query on ``SCHEMA`` and sends each run back as its result.

It has the arguments of ``python -m engines.worker``.
"""

from __future__ import annotations

import random

import pyarrow as pa

from infra.link.server import HostServer
from tests.support.echo_host import EchoHost
from tests.wan.echo_worker import run_worker

SCHEMA = pa.schema({"at": pa.int64(), "text": pa.string()})
CREDIT_BYTES = 16 << 20
"""What engine hosts grant."""


def _make(server: HostServer, _: str) -> EchoHost:
    return EchoHost(server, random.Random(1), 0.0, schema=SCHEMA, result=SCHEMA, credit_bytes=CREDIT_BYTES)


if __name__ == "__main__":
    run_worker(_make)
