"""What the live page and the metrics cost: throughput with and without watchers, one after the other, several times.

The e-mail query reads generated mail as fast as it can, at home only. In every other run three pages are open: each
reads the stream of moments and the lists that the page shows, and a monitor scrapes /metrics each second. Nothing else
may run on the machine.

    OMP_NUM_THREADS=1 python bench/page_cost.py [--pairs 5]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from gateway.views.runrecord import read_record
from tests.connectors.ports import free_port
from tests.e2e.harness import Gateway, email_query, end_hosts, mail_fixture, until, write_mail

MAILS, LOOPS = 20_000, 20
PAGES: Final = 3
LISTS: Final = ("/api/v1/status", "/api/v1/queries", "/api/v1/vms", "/api/v1/costs", "/api/v1/decisions?limit=20")
READY: Final = "ready: "
DEADLINE_S: Final = 900.0


def get(url: str) -> bytes:
    """Return an answer of the gateway."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


class Watchers:
    """Pages and a monitor, which look until they are ended."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ended = threading.Event()
        self.moments = self.scrapes = 0
        works = [self._read_stream] * PAGES + [self._read_lists] * PAGES + [self._scrape]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def _read_stream(self) -> None:
        with suppress(OSError), urllib.request.urlopen(f"{self._url}/api/v1/stream", timeout=10) as stream:
            for line in stream:
                self.moments += line.startswith(b"data:")
                if self._ended.is_set():
                    return

    def _read_lists(self) -> None:
        while not self._ended.wait(1.0):
            with suppress(OSError):
                for path in LISTS:
                    get(self._url + path)

    def _scrape(self) -> None:
        while not self._ended.wait(1.0):
            with suppress(OSError):
                get(f"{self._url}/metrics")
                self.scrapes += 1

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        for thread in self._threads:
            thread.join(15)


def listening(gateway: Gateway) -> str:
    """Let a gateway, which is not started yet, listen at a port of its own; return its URL."""
    address = f"127.0.0.1:{free_port()}"
    gateway.config.write_text(gateway.config.read_text().replace("127.0.0.1:0", address))
    return f"http://{address}"


@contextmanager
def watched(gateway: Gateway, url: str, *, watching: bool) -> Iterator[None]:
    """Let watchers look at a gateway once it is ready, if they shall."""
    until(lambda: READY in gateway.log.read_text(), "the gateway is ready")
    watchers = Watchers(url) if watching else None
    try:
        yield
    finally:
        if watchers is not None:
            watchers.end()
            assert watchers.moments > PAGES, "the pages saw moments"
            assert watchers.scrapes > 1, "the monitor scraped"


def events_per_s(folder: Path, number: int, *, watching: bool) -> float:
    """Return the throughput of one run."""
    name = f"fast-{number}"
    query = email_query(folder, folder / "mail.jsonl", name, replay={"loops": LOOPS, "id": "message_id"})
    place = folder / name
    place.mkdir()
    gateway = Gateway(place, folder / "state", {name: query}, {"max_vms": 0})
    url = listening(gateway)
    gateway.start("--until-drained")
    with watched(gateway, url, watching=watching):
        code = gateway.wait(DEADLINE_S)
    if code != 0:
        raise RuntimeError(f"the gateway ended with {code}: {gateway.tail()}")
    slots = [slot for slot in read_record(gateway.report).slots if slot.completed_rate]
    # The first slots have Spark's first micro-batches, the last one is not full.
    steady = slots[3:-1]
    return median(slot.completed_rate for slot in steady)


def main() -> None:
    """Measure, and print the ratio of each pair and their median."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, help="how many pairs of runs (default 5)")
    pairs = parser.parse_args().pairs
    ratios = []
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name)
        write_mail(folder / "mail.jsonl", mail_fixture(MAILS))
        try:
            events_per_s(folder, 0, watching=False)  # the engine host becomes warm
            for pair in range(pairs):
                order = (False, True) if pair % 2 == 0 else (True, False)
                found = {w: events_per_s(folder, 1 + 2 * pair + n, watching=w) for n, w in enumerate(order)}
                ratios.append(found[True] / found[False])
                print(f"pair {pair}: {found[False]:,.0f} events/s alone, {found[True]:,.0f} watched", file=sys.stderr)
                time.sleep(1.0)
        finally:
            end_hosts(folder / "state")
    print(
        f"throughput while {PAGES} pages and a monitor look, of that without: {median(ratios):.3f} (median of {pairs}),"
    )
    print(f"{min(ratios):.3f} (least), {max(ratios):.3f} (most)")


if __name__ == "__main__":
    main()
