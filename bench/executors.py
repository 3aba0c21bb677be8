"""``python bench/executors.py``: how the events/s of a query at home grow with the executors that read them.

A gateway with ``data_path: reference`` runs a query on a standalone cluster of one to four executors of one core each.
The query's work is a waiting call for each event, so that the cores of this machine do not decide. The table has the
events/s of the later half of the events.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from aiokafka import AIOKafkaProducer
from planning.document import table
from suite.brokers import BROKERS, broker
from suite.tax.clock import Results, end, is_alive, log_told, make_topics
from suite.tax.load import Work, light
from suite.tax.programs import gateway_of, query

from tests.connectors.kafka_broker import Broker
from tests.engines.spark_cluster import cluster

EXECUTORS = (1, 2, 4)
WAIT_S = 0.002
EVENTS_PER_EXECUTOR = 6_000
PARTITIONS = 8
_WITHIN_S = 300.0
_FUNCTION = f"""\
import time

from pyspark.sql import functions as F


@F.udf("bigint")
def waited(at):
    time.sleep({WAIT_S})  # as for an answer from elsewhere
    return at


def ask(events):
    return events.select("device", waited("at").alias("at"), "value")
"""


def main() -> None:
    """Print the table."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with broker() as there:
        os.environ[BROKERS] = there.brokers
        found = {executors: _per_s(there, executors, number) for number, executors in enumerate(EXECUTORS)}
    rows = [(str(each), f"{per_s:,.0f}", f"{per_s / found[1]:.2f}") for each, per_s in found.items()]
    print(table(("executors", "events/s", "times one executor"), rows))


def _per_s(there: Broker, executors: int, number: int) -> float:
    work, events = light(), EVENTS_PER_EXECUTOR * executors
    topics = f"in-{number}", f"out-{number}"
    asyncio.run(_fill(there, topics, work, events))
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name)
        (folder / "waiting.py").write_text(_FUNCTION)
        asked = query(work, *topics)
        del asked["sql"]
        asked |= {"function": "waiting:ask", "runs": {"max_events": 100 * PARTITIONS}, "qos": {"latency": "60s"}}
        with cluster(folder / "cluster", *[[]] * executors, cores=1) as spark:
            log = folder / "log"
            process = gateway_of(folder, {f"waits-{number}": asked}, log, data_path="reference", master=spark.master)
            try:
                with log_told(log):
                    return asyncio.run(_measured(topics[1], process.pid, events))
            finally:
                end(process)


async def _fill(there: Broker, topics: tuple[str, str], work: Work, events: int) -> None:
    await there.create_topic(topics[0], partitions=PARTITIONS)
    await make_topics(topics[1])
    async with AIOKafkaProducer(bootstrap_servers=there.brokers) as producer:
        for at in range(events):
            await producer.send(topics[0], work.event(at, at), partition=at % PARTITIONS)


async def _measured(topic: str, pid: int, events: int) -> float:
    async with Results(topic, lambda: is_alive(pid)).reading() as results:
        begun_s = await results.wait(events // 2, _WITHIN_S)
        return events / 2 / (await results.wait(events, _WITHIN_S) - begun_s)


if __name__ == "__main__":
    sys.exit(main())
