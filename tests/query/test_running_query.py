from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from gateway.config import Config, load
from gateway.core.decide.profiler import Profiler
from gateway.journal.deadletters import ReplayRefusedError, dead_letter
from gateway.query.flow.memory import MemoryPool
from gateway.query.flow.runlog import LogHead, RunLog
from gateway.query.querystate import BrokenQueryError, ExhaustedHostError
from gateway.query.running import PATIENCE, RunningQuery
from infra.clock import SystemClock
from infra.messages import CloseQuery, OpenQuery, QueryFailed, QueryPlan, RunMessage
from policies.failures.overdue import Patience
from tests.query.one_query import CONFIG
from tests.support.file_parts import parts
from tests.support.gateway_doubles import FakeHost
from tests.support.waiting import until

WHOLE = QueryPlan(switch_class="whole", switchable=False, narrow=False, reason="it counts")
EVENTS = 40


@pytest.fixture
def config(tmp_path: Path) -> Config:
    lines = [json.dumps({"id": i, "text": f"event {i}"}) for i in range(EVENTS)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "config.yaml").write_text(CONFIG)
    return load(tmp_path / "config.yaml")


class Made:
    """The query, created in several ways; all instances are stopped after the test."""

    def __init__(self, config: Config, folder: Path) -> None:
        self._config, self._folder = config, folder
        self.queries: list[RunningQuery] = []

    def __call__(
        self,
        *,
        memory_bytes: int = 2,  # so that one run fills its share
        on_overdue: Callable[[str, str], None] = lambda *_: None,
        patience: Patience = PATIENCE,
    ) -> RunningQuery:
        def no_upstream(name: str) -> tuple[Path, object]:
            raise AssertionError(name)

        query = RunningQuery(
            "q",
            self._config.queries["q"],
            folder=self._folder / "state" / "queries" / "q",
            code_path="",
            memory=MemoryPool(memory_bytes).share(),
            profiler=Profiler(1.0, {"q": "mean"}),
            clock=SystemClock(),
            upstream=no_upstream,  # type: ignore[arg-type]
            on_failed=lambda *_: None,
            on_overdue=on_overdue,
            patience=patience,
        )
        self.queries.append(query)
        return query


@pytest.fixture
async def made(config: Config, tmp_path: Path) -> AsyncIterator[Made]:
    made = Made(config, tmp_path)
    yield made
    for query in made.queries:
        await query.stop()


@pytest.fixture
def query(made: Made) -> RunningQuery:
    return made()


async def opened(query: RunningQuery, *, restart: bool, plan: QueryPlan | None = WHOLE) -> FakeHost:
    """Let a host open the query from its beginning; without a ``plan`` it is stateless."""
    host = FakeHost("home")
    opening = asyncio.create_task((query.restart_home if restart else query.start)(host.connection))
    await until(lambda: bool(host.link.sent) or opening.done())
    asked = host.link.sent[0][0]
    assert isinstance(asked, OpenQuery)
    host.link.say(msgspec.structs.replace(host.ready, plan=plan or host.ready.plan, epoch=asked.epoch))
    await opening
    return host


async def test_a_stateful_query_that_held_all_it_may_goes_on_with_a_new_home_host(query: RunningQuery) -> None:
    first = await opened(query, restart=False)
    await until(lambda: len(first.runs) == 1)
    first.link.lose("kill -9")
    await query.lose_home()
    second = await opened(query, restart=True)
    await until(lambda: len(second.runs) == 1)
    assert (second.runs[0].first_seq, second.runs[0].epoch) == (0, 2)
    assert second.rows_of(second.runs[0])[0] == {"id": 0, "text": "event 0"}
    await first.connection.close("done")
    await second.connection.close("done")


async def test_a_stateful_query_that_is_told_to_stop_reads_no_more_on_a_new_home_host(query: RunningQuery) -> None:
    first = await opened(query, restart=False)
    await until(lambda: len(first.runs) == 1)
    await query.stop_reading()
    first.link.lose("kill -9")
    await query.lose_home()
    assert not query.drained
    second = await opened(query, restart=True)
    await until(lambda: query.ingress.finished)
    logged = query.tally.events
    (run,) = second.runs
    second.consume(run)
    second.answer(run.first_seq, run.last_seq)
    await until(lambda: query.drained, what="there is room again, and all that was read is delivered")
    assert query.tally.events == logged < EVENTS
    await first.connection.close("done")
    await second.connection.close("done")


async def test_dead_letters_come_back_although_the_source_has_ended(made: Made, tmp_path: Path) -> None:
    query = made(memory_bytes=1 << 21)
    with pytest.raises(ReplayRefusedError, match="accepts no events now"):
        await query.replay_dead_letters()
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write("no event\n")
    host = await opened(query, restart=False)
    await until(lambda: query.ingress.finished)
    assert query.dead_letters.count == 1
    query.dead_letters.add([dead_letter("it was poison", b'{"id": 77, "text": "again"}', 0.0, seq=5)])
    assert await query.replay_dead_letters() == 2
    assert not query.drained
    await until(lambda: query.ingress.finished)
    assert query.tally.events == EVENTS + 1
    assert query.dead_letters.count == 1, "what is no event now either is kept again"
    await query.stop_reading()
    with pytest.raises(ReplayRefusedError, match="accepts no events now"):
        await query.replay_dead_letters()
    await query.stop()
    *_, last = (tmp_path / "state" / "queries" / "q" / "runs.log").read_text().splitlines()
    assert json.loads(last.split(" ", 1)[1])["end"]["replayed"] == 2
    await host.connection.close("done")


async def drained(query: RunningQuery, host: FakeHost) -> None:
    """Answer every run until all is delivered."""
    answered: list[RunMessage] = []

    def is_drained() -> bool:
        for run in host.runs[len(answered) :]:
            host.consume(run)
            host.answer(run.first_seq, run.last_seq)
            answered.append(run)
        return query.drained

    await until(is_drained)
    await query.stop()
    await host.connection.close("done")


async def test_a_new_sink_does_not_wait_for_what_the_old_one_has(made: Made, tmp_path: Path) -> None:
    first = made(memory_bytes=1 << 21)
    await drained(first, await opened(first, restart=False, plan=None))
    folder = tmp_path / "state" / "queries" / "q"
    log = RunLog(folder / "runs.log", LogHead(json.loads((folder / "query.json").read_text())["owner"], 0.0))
    log.retire(EVENTS, rewrite_bytes=0)
    log.close()
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write(json.dumps({"id": EVENTS, "text": "one more"}) + "\n")
    (tmp_path / "config.yaml").write_text(CONFIG.replace("path: out", "path: other"))
    second = Made(load(tmp_path / "config.yaml"), tmp_path)(memory_bytes=1 << 21)
    await drained(second, await opened(second, restart=False, plan=None))
    assert (second.tally.events, second.tally.results) == (1, 1)
    (part,) = parts(tmp_path / "other")
    assert [json.loads(line)["id"] for line in (tmp_path / "other" / part).read_text().splitlines()] == [EVENTS]
    assert second.pipeline.committed_before == EVENTS + 1, "the source is acknowledged, and the log forgets it"


async def test_stopping_what_was_not_started_or_is_stopped_does_nothing(query: RunningQuery) -> None:
    await query.stop()
    host = await opened(query, restart=False)
    await query.stop()
    assert not query.pipeline.lanes
    await query.stop()
    assert query.failure() is None
    await host.connection.close("done")


async def test_a_stateful_query_whose_answer_is_lost_is_opened_again_from_its_checkpoint(
    made: Made,
) -> None:
    overdue: list[tuple[str, str]] = []
    query = made(
        on_overdue=lambda name, reason: overdue.append((name, reason)),
        patience=Patience(least_s=0.05, unknown_s=0.05, silences=1000.0),
    )
    host = await opened(query, restart=False)
    await until(lambda: len(host.runs) == 1)

    def is_overdue() -> bool:
        query.pipeline.end_slot(None, 0)
        return bool(overdue)

    await until(is_overdue)
    assert overdue[0] == ("q", "the runs from seq 0 on are not answered")
    reopening = asyncio.create_task(query.reopen())
    await until(lambda: isinstance(host.link.sent[-1][0], OpenQuery))
    closed, asked = (message for message, _ in host.link.sent[-2:])
    assert closed == CloseQuery(query="q", epoch=1)
    assert isinstance(asked, OpenQuery)
    assert asked.epoch == 2
    host.link.say(msgspec.structs.replace(host.ready, plan=WHOLE, epoch=2))
    await reopening
    await until(lambda: len(host.runs) == 2)
    assert [(run.first_seq, run.epoch) for run in host.runs] == [(0, 1), (0, 2)]
    await host.connection.close("done")


@pytest.mark.parametrize(
    ("kind", "error"), [({"broken": True}, BrokenQueryError), ({"exhausted": True}, ExhaustedHostError)]
)
async def test_a_query_that_is_at_fault_itself_says_so_until_it_is_started_anew(
    query: RunningQuery, kind: dict[str, bool], error: type[Exception]
) -> None:
    first = await opened(query, restart=False)
    assert query.failure() is None
    first.link.say(QueryFailed(query="q", epoch=1, reason="more than 200 of 1,000 rows fail", **kind))
    await until(lambda: isinstance(query.failure(), error))
    assert str(query.failure()) == "more than 200 of 1,000 rows fail"
    await query.stop()
    second = await opened(query, restart=False)
    assert query.failure() is None
    await first.connection.close("done")
    await second.connection.close("done")
