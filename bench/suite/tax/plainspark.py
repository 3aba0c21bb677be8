"""``python -m suite.tax.plainspark JSON``: a query as plain Structured Streaming on Kafka, or a batch job."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, struct, to_json

_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Job:
    """What is run.

    Attributes:
        mode: ``micro-batch`` or ``real-time`` mode of Structured Streaming, or ``batch``.
        brokers: of Kafka.
        events: the topic of the events.
        results: the topic of the results; of a batch job there are none.
        schema: of the events.
        sql: the query, over the view ``events``.
        jars: of Spark's Kafka connector, parted by commas.
        folder: for Spark's files.
    """

    mode: str
    brokers: str
    events: str
    results: str
    schema: str
    sql: str
    jars: str
    folder: str

    def command(self) -> list[str]:
        """Return the command that runs it."""
        return [sys.executable, "-m", "suite.tax.plainspark", json.dumps(asdict(self))]


def main(job: Job) -> None:
    """Run a stream, or a batch job whenever it is asked for, until terminated."""
    spark = (
        SparkSession.Builder()
        .master("local[1]")
        .config("spark.jars", job.jars)
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", job.folder)
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    if job.mode == "batch":
        _answer(spark, job)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", job.brokers)
    events = reader.option("subscribe", job.events).option("startingOffsets", "earliest").load()
    writer = _results(spark, events, job).writeStream.format("kafka").option("kafka.bootstrap.servers", job.brokers)
    writer = writer.option("topic", job.results).option("checkpointLocation", f"{job.folder}/checkpoint")
    if job.mode == "real-time":
        writer = writer.outputMode("update").trigger(realTime="5 minutes")
    writer.start().awaitTermination()


def _answer(spark: SparkSession, job: Job) -> None:
    """Run the batch job each time when there is a file ``ask``; write to ``answer`` how long it took, in seconds."""
    folder = Path(job.folder)
    while True:
        while not (folder / "ask").exists():
            time.sleep(_POLL_S)
        (folder / "ask").unlink()
        (folder / "answer.new").write_text(str(_batch_s(spark, job)))
        (folder / "answer.new").rename(folder / "answer")


def _batch_s(spark: SparkSession, job: Job) -> float:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", job.brokers)
    begun_s = time.perf_counter()
    _results(spark, reader.option("subscribe", job.events).load(), job).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun_s


def _results(spark: SparkSession, records: DataFrame, job: Job) -> DataFrame:
    events = records.select(from_json(col("value").cast("string"), job.schema).alias("event")).select("event.*")
    events.createOrReplaceTempView("events")
    return spark.sql(job.sql).select(to_json(struct("*")).alias("value"))


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
