"""How much of a WAN the link fills, compared with one plain TCP stream. The goal is 0.95 at 80 ms and 50 Mbit/s.

``python bench/wan_goodput.py [ROUND_TRIP_MS] [MBIT_PER_S]``, as root. Streams take turns, home to cloud, without the
first seconds of each. The link is measured with the window that engine hosts grant, and with smaller ones.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import sys
import tempfile
from asyncio.subprocess import PIPE
from pathlib import Path

from suite.wan.ends import connect, prepare, server_of
from suite.wan.pouring import Meter, pour

from infra.messages import Credit, RunMessage
from infra.wan import Wan, WanSettings, WanSite

WINDOWS_BYTES = (16 << 20, 2 << 20, 512 << 10)  # the first is what engine hosts grant
PAYLOAD = bytes(100_000)
WARM_UP_S = 5.0
MEASURED_S = 8.0
TURNS = 3
DEFAULTS = ("80", "50")


def plain_receiver() -> None:
    """Receive one TCP stream."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        print(server.getsockname()[1], flush=True)
        connection, _ = server.accept()
    meter, buffer = Meter(WARM_UP_S, MEASURED_S), bytearray(1 << 18)
    while not meter.count(8 * connection.recv_into(buffer)):
        pass


def plain_sender(address: str, port: str) -> None:
    """Send one TCP stream until the receiver closes."""
    with socket.create_connection((address, int(port))) as connection:
        while True:
            connection.sendall(PAYLOAD)


async def link_receiver(folder: str) -> None:
    """Act as a host that consumes runs as they arrive."""
    server, meter = server_of(Path(folder)), Meter(WARM_UP_S, MEASURED_S)
    print((await server.start())[1], flush=True)
    while True:
        session, message, payload = await server.receive()
        if isinstance(message, RunMessage):
            await server.send(session, Credit(query="q", epoch=1, bytes=len(payload)))
            if meter.count(8 * len(payload)):
                return


async def link_sender(address: str, port: str, folder: str, window_bytes: str) -> None:
    """Act as a gateway that always has a run to send, within the window."""
    await pour(await connect(Path(folder), (address, int(port))), lambda: PAYLOAD, 1, int(window_bytes))


async def measured(home: WanSite, cloud: WanSite, receiver: list[str], sender: list[str]) -> float:
    """Return the rate of a stream, in bits per second."""
    this = (sys.executable, str(Path(__file__)))
    far = await cloud.run(*this, *receiver, stdout=PIPE)
    assert far.stdout is not None
    port = (await far.stdout.readline()).decode().strip()
    near = await home.run(*this, sender[0], cloud.address, port, *sender[1:], stderr=asyncio.subprocess.DEVNULL)
    result = float(await far.stdout.readline())
    if near.returncode is None:
        near.kill()
    await near.wait()
    await far.communicate()
    return result


async def main(round_trip_ms: float, mbit_per_s: float) -> None:
    """Measure, and print a table."""
    settings = WanSettings(delay_s=round_trip_ms / 2e3, rate_bits_per_s=mbit_per_s * 1e6)
    async with Wan(settings) as wan:
        cloud = await wan.add("cloud-1")
        print(f"{round_trip_ms:g} ms, {mbit_per_s:g} Mbit/s: {round_trip_ms * mbit_per_s / 8:.0f} kB under way")
        with tempfile.TemporaryDirectory() as folder:
            prepare(Path(folder), cloud.address)
            receiver = ["link_receiver", folder]

            async def link(window_bytes: int) -> float:
                return await measured(wan.home, cloud, receiver, ["link_sender", folder, str(window_bytes)])

            shares: dict[int, list[float]] = {window_bytes: [] for window_bytes in WINDOWS_BYTES}
            for _ in range(TURNS):
                plain = await measured(wan.home, cloud, ["plain_receiver"], ["plain_sender"])
                print(f"one plain TCP stream: {plain / 1e6:.1f} Mbit/s", flush=True)
                for window_bytes, measures in shares.items():
                    measures.append(await link(window_bytes) / plain)
                    print(f"  a link with {window_bytes >> 10:5} kB: {measures[-1]:.3f} of it", flush=True)
            for window_bytes, measures in shares.items():
                print(f"{window_bytes >> 10:5} kB, median: {statistics.median(measures):.3f}")


PARTS = {"plain_receiver": plain_receiver, "plain_sender": plain_sender}
LINK_PARTS = {"link_receiver": link_receiver, "link_sender": link_sender}

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments and arguments[0] in PARTS:
        PARTS[arguments[0]](*arguments[1:])
    elif arguments and arguments[0] in LINK_PARTS:
        asyncio.run(LINK_PARTS[arguments[0]](*arguments[1:]))
    else:
        asyncio.run(main(*map(float, [*arguments, *DEFAULTS[len(arguments) :]])))
