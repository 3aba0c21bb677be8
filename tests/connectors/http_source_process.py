"""An HTTP source in a separate process that a test kills. Its argument is a folder, to which it writes its port."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from infra.statefiles import write_atomically
from tests.connectors.http_data import parts_of
from tests.connectors.source_contract import SCHEMA


async def main(folder: Path) -> None:
    _, receiver, source = parts_of(folder, limit_bytes=1 << 26)
    await source.open(SCHEMA)
    write_atomically(folder / "port", str(receiver.port).encode())
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
