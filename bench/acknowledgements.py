"""How long a POST waits for its answer, with the journal on disk alone and with a copy in an object store.

The store is a folder, to which a delay is added for each request, as a bucket far away would. With a real bucket:
``python bench/acknowledgements.py BUCKET [ENDPOINT]``. All ways take turns in one run.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from gateway.journal.copyobjects import ReplicaPlace
from gateway.journal.replica import Replica
from infra.objectstore.base import ObjectStore
from infra.objectstore.folder import FolderStore
from infra.objectstore.s3 import S3Store
from tests.connectors.http_data import Site, site

DELAYS_S = (0.0, 0.02, 0.1)
SENDERS = (1, 64)
REQUESTS = 640
ROUNDS = 3


class DelayedStore(FolderStore):
    """A folder in which the creation of an object takes longer."""

    def __init__(self, folder: Path, delay_s: float) -> None:
        super().__init__(folder)
        self._delay_s = delay_s

    def put_if_absent(self, name: str, data: bytes) -> str:
        """See ``ObjectStore.put_if_absent``."""
        time.sleep(self._delay_s)
        return super().put_if_absent(name, data)


async def _answered(at: Site, senders: int, requests: int) -> list[float]:
    """Return how long each request took, seconds; the senders send one request after another."""

    async def send() -> list[float]:
        waits_s = []
        for n in range(requests // senders):
            begun_s = time.perf_counter()
            status, _, _ = await at.post(b'{"id": "a", "n": %d}' % n)
            waits_s.append(time.perf_counter() - begun_s)
            assert status == 200
        return waits_s

    return [wait_s for waits_s in await asyncio.gather(*(send() for _ in range(senders))) for wait_s in waits_s]


async def measure(stores: dict[str, ObjectStore | None], folder: Path) -> None:
    """Print the waits of each store; None is the journal on disk alone."""
    async with AsyncExitStack() as stack:
        sites: dict[str, Site] = {}
        for name, store in stores.items():
            place = None if store is None else ReplicaPlace(store, f"bench/{time.time_ns()}", "here", 1, lambda: "")
            replica = None if place is None else Replica(place)
            sites[name] = await stack.enter_async_context(site(folder / name, limit_bytes=1 << 28, replica=replica))
        for senders in SENDERS:
            waits_s: dict[str, list[float]] = {name: [] for name in sites}
            for _ in range(ROUNDS):
                for name, at in sites.items():
                    waits_s[name] += await _answered(at, senders, min(REQUESTS, 20 * senders))
            for name, found in waits_s.items():
                most = sorted(found)[int(len(found) * 0.99)]
                print(
                    f"{senders:3d} senders, {name}: median {median(found) * 1e3:.1f} ms, p99 {most * 1e3:.1f} ms, "
                    f"{senders / (sum(found) / len(found)):.0f} answers/s"
                )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        compared: dict[str, ObjectStore | None] = {"disk alone": None}
        if len(sys.argv) > 1:
            compared["bucket"] = S3Store(sys.argv[1], endpoint=(sys.argv[2:] or [None])[0])
        else:
            for delay_s in DELAYS_S:
                compared[f"store + {delay_s * 1e3:.0f} ms"] = DelayedStore(root / f"store-{delay_s}", delay_s)
        asyncio.run(measure(compared, root))
