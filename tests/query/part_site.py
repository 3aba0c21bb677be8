"""A query in three parts over real dispatchers, exchanges and a sink, and engines whose state is a sum for each key."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from gateway.connectors.position import Position
from gateway.query.flow.keyed.together import Division
from gateway.query.flow.run import Run
from gateway.query.flow.runlog import RunRecord
from gateway.query.moving.mover import NotNowError
from gateway.query.moving.partmover import NextPlaceError, PartMover
from infra.link.channel import LinkLost
from infra.messages import HEARTBEAT, Completed, RunMessage
from infra.payload import CodecPolicy, Encoder
from policies.signals import HOME
from tests.query.pipeline_site import Query
from tests.support.gateway_doubles import INPUT, RESULT, FakeHost

PARTS = 3
KEYS = 11
PAUSE_MOST_S = 5.0
OF_PART = INPUT.append(pa.field(HEARTBEAT, pa.bool_()))


@dataclass
class Checkpoint:
    """What an engine has committed: everything before ``seq``."""

    seq: int = 0
    totals: Counter[int] = field(default_factory=Counter)


class Engine:
    """One part on one host. It answers a run, and commits it once the sink has its results, as Spark does."""

    def __init__(self, place: str, begin: Checkpoint) -> None:
        self.place = place
        self.host = FakeHost(place, schema=OF_PART, credit_bytes=3000)
        self.checkpoint = Checkpoint(begin.seq, Counter(begin.totals))
        self.computed: Checkpoint | None = None
        self.committed_before = 0
        self.worked = 0
        self.open = True
        self._encoder = Encoder(RESULT, codecs=CodecPolicy.parse("none"))
        self._consumed: list[RunMessage] = []

    def told(self, last_seq: int) -> None:
        """The sink has everything up to this seq."""
        self.committed_before = max(self.committed_before, last_seq + 1)
        if self.computed is not None and self.computed.seq <= self.committed_before:
            self.checkpoint, self.computed = self.computed, None

    def work(self) -> bool:
        """Answer the next run, if there is one and the last one is committed."""
        runs = self.host.runs
        if self.computed is not None or self.worked == len(runs):
            return False
        run = runs[self.worked]
        assert run.first_seq == self.checkpoint.seq, f"{self.place}: run {run.first_seq} after {self.checkpoint.seq}"
        self.worked += 1
        totals, rows = Counter(self.checkpoint.totals), []
        for row in self.host.rows_of(run):
            if not row[HEARTBEAT]:
                totals[row["id"]] += int(row["text"])
                rows.append({"id": row["id"], "lane": f"{row['text']} {totals[row['id']]}"})
        self.computed = Checkpoint(run.last_seq + 1, totals)
        batch = self._encoder.encode(pa.RecordBatch.from_pylist(rows, schema=RESULT))
        said = Completed(
            query="q",
            epoch=run.epoch,
            first_seq=run.first_seq,
            last_seq=run.last_seq,
            attempt=run.attempt,
            rows=batch.rows,
            batch_id=self.worked,
            batch_s=0.1,
        )
        self.host.link.say(said, batch.payload)
        self._consumed.append(run)
        self.told(-1)
        return True

    def credit(self) -> None:
        """Report the bytes of the runs that were answered."""
        while self._consumed:
            self.host.consume(self._consumed.pop())


class PartSite(Query):
    """The query, all parts at home at first, and their moves.

    Args:
        folder: for its sink and log.
        chance: draws what is not asked for.

    Attributes:
        engines: the engine that answers for each part.
        nexts: the engine in the next place of each part that moves.
        ends: how each move ended.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.chance = chance
        division = Division("id", {}, (), (HOME,) * PARTS, (0,) * PARTS, (0,), lambda _: None)
        super().__init__(folder, stateful=True, division=division)
        self.engines = [Engine(HOME, Checkpoint()) for _ in range(PARTS)]
        self.nexts: dict[int, Engine] = {}
        self.movers: dict[int, Any] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.ends: Counter[str] = Counter()
        self.held_s: list[float] = []
        self.taken_bytes = 0
        self.keys: list[int] = []
        self._last_seq = -1
        for part, engine in enumerate(self.engines):
            self._add(part, engine)

    def _add(self, part: int, engine: Engine) -> None:
        dispatcher = self.pipeline.parts[part]
        self.all_hosts.append(engine.host)
        dispatcher.add_lane(engine.host.lane(dispatcher, self.clock))

    def on_commit(self, last_seq: int) -> None:
        self._last_seq = max(self._last_seq, last_seq)
        for engine in (*self.engines, *self.nexts.values()):
            engine.told(last_seq)

    def put(self, events: int) -> None:
        """Let a run of random keys come; the text of an event is its seq."""
        first = len(self.keys)
        self.keys += [self.chance.randrange(KEYS) for _ in range(events)]
        rows = [{"id": self.keys[seq], "text": str(seq)} for seq in range(first, len(self.keys))]
        batch = pa.RecordBatch.from_pylist(rows, schema=INPUT)
        last = len(self.keys) - 1
        run = Run(first, last, batch, self.clock.now(), batch.nbytes)
        self.log.append([RunRecord(first, last, Position(first), Position(last + 1), self.clock.wall())])
        self.memory.take(run.raw_bytes)
        self.pipeline.offer(run)

    # --------------------------------------------------------------------------------------------------------- moves

    def move(self, part: int, place: str) -> None:
        """Begin to move a part, unless it moves already."""
        if part in self.tasks or self.engines[part].place == place:
            return
        self.movers[part] = SimpleNamespace(place=self.engines[part].place, next_place=place)
        self.tasks[part] = asyncio.create_task(self._move(part, place))

    async def _move(self, part: int, place: str) -> None:
        mover, engine = self.movers[part], Engine(place, Checkpoint())
        found: list[Checkpoint] = []

        async def copied(from_seq: int) -> None:
            for _ in range(200):
                found.append(self.engines[part].checkpoint)
                if found[-1].seq >= from_seq:
                    return
                await self.clock.sleep_until(self.clock.now() + 0.05)
            raise NotNowError("it does not get that far")

        async def opened() -> Any:
            await self.clock.sleep_until(self.clock.now() + self.chance.choice([0.0, 0.3, 2.0]))
            if not engine.host.connection.alive:
                raise LinkLost("kill -9")
            engine.checkpoint = Checkpoint(found[-1].seq, Counter(found[-1].totals))
            return SimpleNamespace(ready=SimpleNamespace(resume_seq=found[-1].seq), lane=engine.host.lane)

        mover.send_while_open = mover.fetch_while_open = copied
        self.nexts[part] = engine
        self.all_hosts.append(engine.host)
        moving = PartMover(
            self.pipeline.parts[part],
            mover,
            engine.host.connection,
            PAUSE_MOST_S,
            open_there=opened,
            close=self._closed(engine),
            on_commit=lambda _: engine.told(self._last_seq),
            on_switched=lambda since_s: self._switched(part, engine, since_s),
            clock=self.clock,
        )
        try:
            await moving.run()
            self.ends["switched"] += 1
        except (NextPlaceError, LinkLost, NotNowError, asyncio.CancelledError) as error:
            self.ends[type(error).__name__] += 1
        finally:
            del self.tasks[part]
            self.nexts.pop(part, None)

    def _closed(self, engine: Engine) -> Callable[[], Any]:
        async def close() -> None:
            engine.open = False

        return close

    def _switched(self, part: int, engine: Engine, since_s: float) -> None:
        self.held_s.append(self.clock.now() - since_s)
        self.engines[part].open = False
        self.engines[part] = self.nexts.pop(part)
        self.movers[part].place = engine.place

    # ------------------------------------------------------------------------------------------------------- the end

    def found(self) -> list[tuple[int, int, int]]:
        """The results: (seq, key, sum of the seqs of this key so far)."""
        return [(*map(int, row["lane"].split()), row["id"]) for row in self.rows()]

    def expected(self) -> list[tuple[int, int, int]]:
        """What one place would answer: a plain loop over all events."""
        totals = [0] * KEYS
        rows = []
        for seq, key in enumerate(self.keys):
            totals[key] += seq
            rows.append((seq, totals[key], key))
        return rows


async def rest(chance: random.Random) -> None:
    """Let tasks go on, and sometimes the threads that write to the disk, too."""
    await asyncio.sleep(0.002 if chance.random() < 0.2 else 0)
