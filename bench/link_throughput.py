"""How many payload bytes a link carries over loopback TLS. The goal is 200 MB/s, 40 times the WAN of the demo.

Two processes are connected, as in production. Each direction is measured in turn.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from infra.clock import SystemClock
from infra.link.client import HostLink
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import Authority, UserData, new_token
from infra.link.server import HostServer, SessionStarted
from infra.messages import PROTOCOL, CommittedMessage, Completed, RunMessage
from infra.runtime import Runtime

HOST = "bench-1"
PAYLOAD = b"x" * (1 << 20)
RUNTIME = Runtime(protocol=PROTOCOL, spark="", java="", python="", timezone="UTC", ansi=True)


def serve(directory: str, user_data: str, address: multiprocessing.Queue[tuple[str, int]]) -> None:
    """Act as the host, in a separate process."""
    asyncio.run(_serve(Path(directory), UserData.from_json(user_data), address))


async def _serve(directory: Path, user_data: UserData, address: multiprocessing.Queue[tuple[str, int]]) -> None:
    server = HostServer(HostIdentity.open(user_data, directory), user_data, RUNTIME, clock=SystemClock())
    address.put(await server.start())
    while True:
        session, message, _ = await server.receive()
        match message:
            case RunMessage() if message.last_seq:
                await server.send(session, CommittedMessage(query="", epoch=0, last_seq=message.last_seq))
            case CommittedMessage():
                for _ in range(message.last_seq):
                    answer = Completed(
                        query="", epoch=0, first_seq=0, last_seq=0, attempt=0, rows=0, batch_id=0, batch_s=0
                    )
                    await server.send(session, answer, PAYLOAD)
            case SessionStarted() | RunMessage():
                pass
            case _:
                return


async def measure(count: int) -> None:
    """Send ``count`` payloads, then receive as many."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority.open(Path(folder) / "gateway")
        user_data = UserData(host=HOST, ca_pem=authority.ca_pem, token=new_token())
        identity = HostIdentity.open(user_data, Path(folder) / "host")
        identity.install(authority.sign(identity.csr(), HOST))
        addresses: multiprocessing.Queue[tuple[str, int]] = multiprocessing.Queue()
        host = multiprocessing.Process(target=serve, args=(str(Path(folder) / "host"), user_data.to_json(), addresses))
        host.start()
        link = await HostLink.connect(addresses.get(), authority, HOST, "bench", clock=SystemClock())
        start_s = time.perf_counter()
        for seq in range(1, count + 1):
            last_seq = seq if seq == count else 0
            await link.send(RunMessage(query="", epoch=0, first_seq=0, last_seq=last_seq, attempt=0, rows=0), PAYLOAD)
        await link.receive()
        sent_s = time.perf_counter()
        await link.send(CommittedMessage(query="", epoch=0, last_seq=count))
        for _ in range(count):
            await link.receive()
        received_s = time.perf_counter()
        size_mb = count * len(PAYLOAD) / 1e6
        print(f"to the host   {size_mb / (sent_s - start_s):6.0f} MB/s")
        print(f"from the host {size_mb / (received_s - sent_s):6.0f} MB/s")
        print(f"heartbeat     {(link.stats.rtt_s or 0) * 1e3:6.1f} ms round trip meanwhile")
        await link.close("measured")
        await asyncio.to_thread(host.join)


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 500))
