"""An HTTP source is killed again and again: accepted records are there once, and its keys survive the restart."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

from gateway.connectors.position import Position
from tests.connectors.http_data import parts_of
from tests.connectors.source_contract import HUGE, SCHEMA

SEED = 20261121
KILLS = 6
SENDERS = 4
DEADLINE_S = 60.0


class Sender:
    """Sends one request after another, each with a key, and repeats each until it is answered with 200."""

    def __init__(self, name: int) -> None:
        self.name = name
        self.answered: list[int] = []
        self.duplicates = 0

    async def run(self, port_file: Path, stop: asyncio.Event) -> None:
        number = 0
        async with aiohttp.ClientSession() as client:
            while not stop.is_set():
                rows = [{"id": f"{self.name}-{number}-{i}", "n": number} for i in range(3)]
                await self._send(client, port_file, f"{self.name}-{number}", rows)
                self.answered.append(number)
                number += 1

    async def _send(self, client: aiohttp.ClientSession, port_file: Path, key: str, rows: list[dict[str, Any]]) -> None:
        body = b"\n".join(json.dumps(row).encode() for row in rows)
        give_up_s = time.monotonic() + DEADLINE_S
        while True:
            assert time.monotonic() < give_up_s, f"{key} was not answered"
            try:
                url = f"http://127.0.0.1:{port_file.read_text()}/events"
                async with client.post(url, data=body, headers={"Idempotency-Key": key}) as answer:
                    assert answer.status == 200, await answer.text()
                    self.duplicates += (await answer.json())["duplicate"]
                    return
            except (aiohttp.ClientError, FileNotFoundError):
                await asyncio.sleep(0.01)


async def start(folder: Path) -> asyncio.subprocess.Process:
    """Start a source in a separate process; return once it listens."""
    (folder / "port").unlink(missing_ok=True)
    script = Path(__file__).with_name("http_source_process.py")
    process = await asyncio.create_subprocess_exec(sys.executable, "-W", "error", str(script), str(folder))
    give_up_s = time.monotonic() + DEADLINE_S
    while not (folder / "port").exists():
        assert process.returncode is None
        assert time.monotonic() < give_up_s
        await asyncio.sleep(0.01)
    return process


async def test_every_answered_request_is_there_once(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    senders = [Sender(n) for n in range(SENDERS)]
    stop = asyncio.Event()
    process = await start(tmp_path)
    tasks = [asyncio.create_task(sender.run(tmp_path / "port", stop)) for sender in senders]
    for _ in range(KILLS):
        enough = sum(len(sender.answered) for sender in senders) + chance.randint(10, 60)
        while sum(len(sender.answered) for sender in senders) < enough:
            assert not any(task.done() for task in tasks)
            await asyncio.sleep(0.001)
        process.kill()
        await process.wait()
        process = await start(tmp_path)
    stop.set()
    await asyncio.gather(*tasks)
    process.kill()
    await process.wait()
    found = await ids_in(tmp_path)
    wanted = [f"{s.name}-{n}-{i}" for s in senders for n in s.answered for i in range(3)]
    assert len(wanted) > 3 * KILLS * 10
    assert sorted(found) == sorted(wanted)


async def ids_in(folder: Path) -> list[str]:
    """Everything that a source reads which is opened last."""
    _, _, source = parts_of(folder, limit_bytes=1 << 26)
    await source.open(SCHEMA)
    await source.seek(Position())
    found: list[str] = []
    while (chunk := await source.read(1000, HUGE)) is not None:
        assert chunk.dead == ()
        found += chunk.batch.column("id").to_pylist()
    await source.close()
    return found
