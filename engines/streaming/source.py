"""The streaming Python data source that passes runs to Spark.

Spark requests offsets and partitions in a separate Python process on the driver. That process talks to the engine host
(`engines.streaming.feed`) over a Unix socket. Partitions carry their rows, so executors need neither that socket nor a
shared disk. Executors import this module, so it must import little.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from multiprocessing.connection import Client, Connection
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

FORMAT = "spillway_runs"


class RunSource(DataSource):
    """Runs of one feed; option ``socket`` is the host's socket, ``feed`` the feed's name."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._socket = options["socket"]
        self._feed = options["feed"]

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def streamReader(self, schema: StructType) -> RunReader:  # noqa: ARG002, N802 - the names are Spark's
        """Return the reader; rows already have Spark's schema here."""
        return RunReader(self._socket, self._feed)


class RunReader(DataSourceStreamReader):
    """Requests offsets from the host, and unpacks partitions on executors.

    An offset is ``{"at": n}``: everything before position n has been read.
    """

    def __init__(self, socket: str, feed: str) -> None:
        self._address = socket
        self._feed = feed
        # Opened by the first request: executors create readers too, and must not connect.
        self._connection: Connection[bytes, bytes] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the position where the feed begins."""
        return {"at": self._ask({"op": "first"})["at"]}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """Return where the next micro-batch ends; the host answers late if there is nothing, which saves polls."""
        return {"at": self._ask({"op": "latest", "start": start["at"]})["at"]}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return no limit of Spark's: the feed limits the runs of a micro-batch."""
        return ReadAllAvailable()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the rows between two offsets, one partition (an Arrow stream) after another."""
        count = self._ask({"op": "batch", "start": start["at"], "end": end["at"]})["parts"]
        assert self._connection is not None
        return [InputPartition(self._connection.recv_bytes()) for _ in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Unpack a partition."""
        with pa.ipc.open_stream(partition.value) as stream:
            yield from stream

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the host releases a run when it has answered it."""

    def stop(self) -> None:
        """Close the connection to the host."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._connection is None:
            self._connection = Client(self._address, "AF_UNIX")
        self._connection.send_bytes(json.dumps(question | {"feed": self._feed}).encode())
        answer: dict[str, Any] = json.loads(self._connection.recv_bytes())
        if "error" in answer:
            raise RuntimeError(f"the engine host closed feed {self._feed}: {answer['error']}")
        return answer
