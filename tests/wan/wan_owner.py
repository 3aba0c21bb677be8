"""A process that creates a WAN, prints its namespaces' names and their process numbers, and waits to be killed."""

from __future__ import annotations

import asyncio
import json

from infra.wan import Wan
from infra.wan.commands import run
from infra.wan.namespaces import existing
from tests.wan.wan_site import IMAGE


async def main() -> None:
    async with Wan(image=IMAGE) as wan:
        await wan.home.run("sleep", "1000")
        prefix = wan.home.namespace.removesuffix("home")
        names = [name for name in await existing() if name.startswith(prefix)]
        pids = [int(pid) for name in names for pid in (await run("ip", "netns", "pids", name)).split()]
        print(json.dumps({"names": names, "pids": pids}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
