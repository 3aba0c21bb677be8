"""A process cloud's worker without Spark: an engine host that quickly sends each run back as its answer.

It has the arguments of ``python -m engines.worker``. With ``ECHO_EVENTS_PER_S`` it serves at most that rate, and each
answer says where and when it was made (by the monotonic clock, which all processes of a machine share).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from infra.clock import SystemClock
from infra.link.keys.identity import HostIdentity
from infra.link.keys.secret_files import write_private
from infra.link.keys.trust import UserData
from infra.link.server import HostServer
from tests.support.echo_host import RUNTIME, EchoHost
from tests.support.gateway_doubles import RESULT


class TimedHost(EchoHost):
    """Serves at a rate.

    Args:
        server: as in ``EchoHost``.
        events_per_s: the rate.
        name: is contained in each answer.
    """

    def __init__(self, server: HostServer, events_per_s: float, name: str) -> None:
        super().__init__(server, random.Random(1), 0.0)
        self._events_per_s = events_per_s
        pa.array([""])  # the first one imports pandas: seconds of silence on a busy machine
        self._name = name

    async def work(self, events: pa.RecordBatch) -> pa.RecordBatch:
        await asyncio.sleep(events.num_rows / self._events_per_s)
        said = pa.array([f"{self._name}@{time.monotonic()}"] * events.num_rows)
        return pa.RecordBatch.from_arrays([events["id"], said], schema=RESULT)


def run_worker(make: Callable[[HostServer, str], EchoHost]) -> None:
    """Serve until killed, with the arguments of ``python -m engines.worker``; ``make`` also gets the host's name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--user-data", type=Path)
    parser.add_argument("--workdir", type=Path)
    given, _ = parser.parse_known_args()
    asyncio.run(_serve(UserData.from_json(given.user_data.read_bytes()), given.workdir, make))


async def _serve(user_data: UserData, workdir: Path, make: Callable[[HostServer, str], EchoHost]) -> None:
    server = HostServer(HostIdentity.open(user_data, workdir / "identity"), user_data, RUNTIME, clock=SystemClock())
    address, port = await server.start()
    server.ready = True
    told = {"host": user_data.host, "pid": os.getpid(), "address": address, "port": port, "started": 0.0}
    write_private(workdir / "host.json", json.dumps(told).encode())
    await make(server, user_data.host).serve()


def _by_environment(server: HostServer, host: str) -> EchoHost:
    rate = os.environ.get("ECHO_EVENTS_PER_S")
    return TimedHost(server, float(rate), host) if rate else EchoHost(server, random.Random(1), 0.0)


if __name__ == "__main__":
    run_worker(_by_environment)
