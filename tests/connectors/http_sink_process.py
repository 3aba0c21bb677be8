"""An HTTP sink in a separate process that a test kills: python http_sink_process.py URL FOLDER."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.connectors.http_taker import sink_to
from tests.connectors.sink_contract import at, release


async def main(url: str, folder: Path) -> None:
    sink = sink_to(url, folder)
    await sink.open()
    for first in range(0, 50, 10):
        await sink.commit([release(first, first + 4), release(first + 5, first + 9)], at(first + 9))
    await sink.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
