"""An MQTT source in a separate process that a test kills; it records what it reads.

Usage: python mqtt_receiver_process.py FOLDER PORT CONFIG-JSON. It runs until it is killed, or until the file ``stop``
exists. FOLDER/read.jsonl has one line for each chunk: the position after it, and its numbers. The file ``open`` exists
once it has subscribed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from gateway.connectors.position import Position
from infra.rows.base import SourceUnavailableError
from tests.connectors.mqtt_subject import make_source
from tests.connectors.source_contract import SCHEMA


class Line(msgspec.Struct):
    end: Position
    numbers: list[int]


def read_lines(path: Path) -> list[Line]:
    """The records that are complete; a torn last line is left out."""
    if not path.exists():
        return []
    return [msgspec.json.decode(text, type=Line) for text in path.read_bytes().split(b"\n")[:-1]]


def cut_torn_tail(path: Path) -> None:
    if path.exists():
        data = path.read_bytes()
        os.truncate(path, data.rfind(b"\n") + 1)


async def main(folder: Path, port: int, said: dict[str, Any]) -> None:
    path = folder / "read.jsonl"
    cut_torn_tail(path)
    lines = read_lines(path)
    source = make_source(folder, port, **said)
    await source.open(SCHEMA)
    if source.receiver.failure is None:
        (folder / "open").touch()
    await source.seek(lines[-1].end if lines else Position())
    with path.open("ab") as file:
        while not (folder / "stop").exists():
            try:
                chunk = await source.read(100, 1 << 20)
            except SourceUnavailableError:
                chunk = None
            if chunk is None:
                await asyncio.sleep(0.002)
                continue
            numbers = chunk.batch.column("n").to_pylist()
            file.write(msgspec.json.encode(Line(chunk.end, numbers)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
            await source.acknowledge(chunk.end)
    await source.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])))
