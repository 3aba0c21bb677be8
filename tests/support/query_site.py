"""A query with its source, state and sink in one folder, and a host that answers; it can be started repeatedly."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from gateway.config import Config, load
from gateway.config.models import PrivateConfig, SparkConfig
from gateway.core.decide.profiler import Profiler
from gateway.query.flow.delivery import Pace
from gateway.query.flow.memory import MemoryPool
from gateway.query.handover import OwningFleet
from gateway.query.running import RunningQuery
from infra.clock import SystemClock
from infra.messages import Completed, Credit, OpenQuery, QueryPlan, QueryReady, QueryRefused, RunMessage
from infra.payload import CodecPolicy, Encoder
from tests.support.gateway_doubles import INPUT, RESULT, FakeHost
from tests.support.waiting import until

CONFIG = """\
cloud:
  provider: process
  max_vms: 0
  boot: 10s
  billing: {period: 60s, minimum: 60s, usd_per_hour: 0.1, usd_per_gb_sent: 0.09}
  budget: {usd_per_day: 5}
"""
AT_ONCE = Pace(part_s=0.01, tick_s=0.005)
STATELESS = QueryPlan(switch_class="stateless", switchable=True, narrow=True)
WHOLE = QueryPlan(switch_class="whole", switchable=False, narrow=False, reason="it counts")


class Engine:
    """A host that answers each run with its rows, each with the SQL of the query that it was sent to.

    A query is stateful if its SQL begins with "SELECT COUNT"; its state is lost with the host. ``silent``: runs are not
    answered. ``answers``: says for each run whether it is answered. ``copies``: its plan, if the results are the rows
    themselves.
    """

    def __init__(
        self,
        name: str = "home",
        *,
        silent: bool = False,
        answers: Callable[[RunMessage], bool] = lambda _: True,
        copies: QueryPlan | None = None,
    ) -> None:
        self.host = FakeHost(name)
        self.silent = silent
        self._copies = copies
        self._answers = answers
        self.opened: dict[int, OpenQuery] = {}
        self._encoder = Encoder(RESULT, codecs=CodecPolicy.parse("none"))
        self._seen = 0
        self._task = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            new = self.host.link.sent[self._seen :]
            self._seen += len(new)
            for message, payload in new:
                if isinstance(message, OpenQuery):
                    self._open(message)
                elif isinstance(message, RunMessage):
                    self._answer(message, payload)

    def _open(self, asked: OpenQuery) -> None:
        if asked.sql.startswith("SELECT NONSENSE"):
            self.host.link.say(QueryRefused(query="q", epoch=asked.epoch, reason="it is nonsense"))
            return
        if asked.epoch:  # else it is only tried out
            self.opened[asked.epoch] = asked
        stateful = asked.sql.startswith("SELECT COUNT")
        if stateful:
            offsets = Path(asked.checkpoint_dir) / "1" / "offsets"
            offsets.mkdir(parents=True, exist_ok=True)
            (offsets / "0").touch()
        ready = QueryReady(
            query="q",
            epoch=asked.epoch,
            input_schema=INPUT.serialize().to_pybytes(),
            result_schema=RESULT.serialize().to_pybytes(),
            plan=WHOLE if stateful else self._copies or STATELESS,
            credit_bytes=1 << 20,
            resume_seq=asked.begin_seq if stateful else 0,
            resume_end_seq=asked.begin_seq if stateful else 0,
        )
        self.host.link.say(ready)

    def _answer(self, run: RunMessage, payload: bytes) -> None:
        self.host.link.say(Credit(query="q", epoch=run.epoch, bytes=len(payload)))
        if self.silent or not self._answers(run):
            return
        sql = self.opened[run.epoch].sql
        rows = [{"id": row["id"], "lane": row["text"] if self._copies else sql} for row in self.host.decoded(payload)]
        batch = self._encoder.encode(pa.RecordBatch.from_pylist(rows, schema=RESULT))
        message = Completed(
            query="q",
            epoch=run.epoch,
            first_seq=run.first_seq,
            last_seq=run.last_seq,
            attempt=1,
            rows=len(rows),
            batch_id=1,
            batch_s=0.1,
        )
        self.host.link.say(message, batch.payload)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.host.connection.close("done")


class Site:
    """A folder with inputs, and the state and the sink of one query."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, ids: range) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = "".join(json.dumps({"id": i, "text": "x"}) + "\n" for i in ids).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

    def config(self, *, gateway: dict[str, Any] | None = None, **said: Any) -> Config:
        queries: dict[str, Any] = {}
        source = said.get("source", {})
        if source.get("type") == "query":
            queries[source["name"]] = self._query(sink={"type": "file", "path": source["name"]})
        queries["q"] = self._query(**said)
        path = self.folder / "config.yaml"
        sections = {"gateway": {"state_dir": "state", **(gateway or {})}, "queries": queries}
        path.write_text(CONFIG + "".join(f"{name}: {json.dumps(said)}\n" for name, said in sections.items()))
        return load(path)

    def _query(self, **said: Any) -> dict[str, Any]:
        return {
            "source": {"type": "file", "path": "in.jsonl"},
            "schema": "id BIGINT, text STRING",
            "sql": "SELECT a",
            "sink": {"type": "file", "path": "out"},
            "qos": {"latency": "2s"},
            "runs": {"max_events": 10},
            **said,
        }

    @asynccontextmanager
    async def started(self, engine: Engine, **said: Any) -> AsyncIterator[RunningQuery]:
        """A query that is open; ``state`` is the name of its state_dir; ``fleet`` and ``spark`` are its gateway's."""
        state: str = said.pop("state", "state")
        fleet: OwningFleet | None = said.pop("fleet", None)
        spark: SparkConfig = said.pop("spark", SparkConfig())
        query = RunningQuery(
            "q",
            self.config(**said).queries["q"],
            folder=self.folder / state / "queries" / "q",
            code_path=str(self.folder) if "function" in said else "",
            memory=MemoryPool(1 << 21).share(),
            profiler=Profiler(1.0, {"q": "mean"}),
            clock=SystemClock(),
            upstream=lambda name: (self.folder / name, lambda: True),
            on_failed=lambda *_: None,
            on_overdue=lambda *_: None,
            fleet=fleet,
            private=PrivateConfig(spark=spark),
            pace=AT_ONCE,
        )
        try:
            await query.start(engine.host.connection)
            yield query
        finally:
            await query.stop()
            await engine.close()

    async def drain(self, **said: Any) -> dict[int, OpenQuery]:
        """Run until everything is in the sink; return what was opened."""
        engine = Engine()
        async with self.started(engine, **said) as query:
            await until(lambda: query.drained or query.failure() is not None)
            if (error := query.failure()) is not None:
                raise error
        return engine.opened

    async def read_only(self, **said: Any) -> None:
        """Log all events, but let no result come back."""
        async with self.started(Engine(silent=True), **said) as query:
            await until(lambda: query.ingress.finished)

    def rows(self, sink: str = "out") -> list[tuple[int, str]]:
        parts = sorted(path for path in (self.folder / sink).iterdir() if path.suffix == ".jsonl")
        rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
        return [(row["id"], row["lane"]) for row in rows]

    def ids(self) -> list[int]:
        return [number for number, _ in self.rows()]


def at(path: str, **more: Any) -> dict[str, Any]:
    return {"source": {"type": "file", "path": path, **more}}
