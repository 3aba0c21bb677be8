"""An engine host that enrols and gets a link, and then finds that it cannot work.

Usage: as ``engines.worker``: ``--user-data FILE --workdir FOLDER --master MASTER``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from infra.clock import SystemClock
from infra.link.keys.identity import HostIdentity
from infra.link.keys.secret_files import write_private
from infra.link.keys.trust import UserData
from infra.link.server import HostServer, SessionStarted
from infra.messages import PROTOCOL
from infra.runtime import Runtime

RUNTIME = Runtime(protocol=PROTOCOL, spark="4.3.0", java="21", python="3.11", timezone="UTC", ansi=True)


async def main(told: UserData, workdir: Path) -> None:
    server = HostServer(HostIdentity.open(told, workdir), told, RUNTIME, clock=SystemClock())
    address, port = await server.start()
    write_private(workdir / "host.json", json.dumps({"address": address, "port": port}).encode())
    while not isinstance((await server.receive())[1], SessionStarted):
        pass
    await server.close("the host ends: Spark did not start")
    print("java.lang.OutOfMemoryError: no room for Spark here", flush=True)


if __name__ == "__main__":
    given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    asyncio.run(main(UserData.from_json(Path(given["--user-data"]).read_bytes()), Path(given["--workdir"])))
    sys.exit(2)
