"""CPU of the gateway's process for each event, Kafka to Kafka, by value and by reference.

``python bench/kafka_at_home.py 800000 20000``: so many events, which are in the topic before the gateway starts, and so
many in a run; of mails a tenth as many. One engine host has one core. What comes before the first third of the results
is not counted.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil
from suite.brokers import BROKERS, broker
from suite.tax.clock import Results, end, fill, is_alive, log_told, new_topics
from suite.tax.load import Work, heavy, light
from suite.tax.programs import gateway

MAIL = "the e-mail query"
EVERY = 100
_WITHIN_S = 600.0


def _selective(condition: str) -> Work:
    one_in = tuple(at == EVERY - 1 for at in range(EVERY))
    sql = f"SELECT device, at, value * 1.8 + 32 AS fahrenheit FROM events WHERE {condition}"
    return dataclasses.replace(light(), sql=sql, passes=one_in)


def works() -> dict[str, Work]:
    """Return the queries by what is said about them."""
    return {
        "1 in 100, by a number": _selective(f"at % {EVERY} = {EVERY - 1}"),
        "1 in 100, by a text": _selective("endswith(CAST(at AS STRING), '99')"),
        MAIL: heavy(),
    }


def main() -> None:
    """Print a line for each query and path."""
    events, run_events = int(sys.argv[1]), int(sys.argv[2])
    with broker() as there:
        os.environ[BROKERS] = there.brokers
        for what, work in works().items():
            some = events // 10 if what == MAIL else events
            for path in ("gateway", "reference"):
                topics = asyncio.run(new_topics())
                asyncio.run(fill(topics[0], work, some))
                each_us, per_s = _play(work, topics, path, some, run_events)
                print(f"{what}, {path}: {each_us:.2f} us, {per_s:,.0f} events/s", flush=True)


def _play(work: Work, topics: tuple[str, str], path: str, events: int, run_events: int) -> tuple[float, float]:
    more = {"runs": {"max_events": run_events, "max_bytes": "16MiB"}, "qos": {"latency": "60s"}}
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"
        process = gateway(Path(name), work, log, *topics, data_path=path, more=more)
        try:
            with log_told(log):
                return asyncio.run(_measured(work, topics[1], process.pid, events))
        finally:
            end(process)


async def _measured(work: Work, topic: str, pid: int, events: int) -> tuple[float, float]:
    process, all_results = psutil.Process(pid), work.results(events)
    async with Results(topic, lambda: is_alive(pid)).reading() as results:
        await results.wait(all_results // 3, _WITHIN_S)
        begun_s, cpu_s, before = time.monotonic(), sum(process.cpu_times()[:2]), len(results.rows)
        await results.wait(all_results, _WITHIN_S)
        counted = (all_results - before) / all_results * events
        return (sum(process.cpu_times()[:2]) - cpu_s) / counted * 1e6, counted / (time.monotonic() - begun_s)


if __name__ == "__main__":
    main()
