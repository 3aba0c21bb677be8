"""Where the demo's topics are, and how Spark reaches them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from gateway.demo.kafka.mails import PARTITIONS

_PACKAGE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"


@dataclass(frozen=True, slots=True)
class KafkaSite:
    """A broker, and Spark's connector.

    Attributes:
        brokers: host:port, several parted by commas.
        connector: the folder of the connector's jars; None lets Spark download them.
    """

    brokers: str
    connector: Path | None = None

    @property
    def why_not(self) -> str:
        """Why the connector cannot be used; empty if it can."""
        if self.connector is None or any(self.connector.glob("spark-sql-kafka*.jar")):
            return ""
        return f"{self.connector} has no jar of Spark's Kafka connector: make connector downloads them"

    @property
    def private(self) -> Mapping[str, Any]:
        """The part ``private`` of the gateway's config that differs from the other demo's."""
        if self.connector is None:
            conf = {"spark.jars.packages": f"{_PACKAGE}:{version('pyspark')}"}
        else:
            conf = {"spark.jars": ",".join(str(jar) for jar in sorted(self.connector.absolute().glob("*.jar")))}
        # A thread for each partition, which real-time mode occupies, and one more; all of them on home's one CPU.
        return {"data_path": "direct", "spark": {"master": f"local[{PARTITIONS + 1}]", "conf": conf}}
