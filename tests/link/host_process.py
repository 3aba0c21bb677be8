"""A host in a separate process that can be stopped and killed; prints its port, then answers each run."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from infra.clock import SystemClock
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import UserData
from infra.link.server import HostServer
from infra.messages import RunMessage
from tests.link.link_site import RUNTIME, completed


async def serve(user_data: UserData, directory: Path) -> None:
    server = HostServer(HostIdentity.open(user_data, directory), user_data, RUNTIME, clock=SystemClock())
    _, port = await server.start()
    print(port, flush=True)
    while True:
        session, message, payload = await server.receive()
        if isinstance(message, RunMessage):
            await server.send(session, completed(message.first_seq), payload)


if __name__ == "__main__":
    asyncio.run(serve(UserData.from_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2])))
