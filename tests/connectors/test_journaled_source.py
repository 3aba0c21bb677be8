"""The source over a journal, with a receiver that the test controls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gateway.connectors.position import Position
from gateway.journal.journal import Journal
from gateway.sources.journaled import JournaledSource
from infra.clock import SystemClock
from infra.rows.base import SourceError, SourceUnavailableError
from tests.connectors.journal_data import HUGE, LIMIT_BYTES, SetClock
from tests.connectors.source_contract import SCHEMA, SourceContract, events, read


class HandReceiver:
    """Receives nothing by itself."""

    def __init__(self) -> None:
        self.failure: SourceError | SourceUnavailableError | None = None
        self.running = False

    async def start(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.running = True

    async def stop(self) -> None:
        self.running = False


class HandSource(JournaledSource):
    """A journaled source whose parts the test may use."""

    def __init__(self, folder: Path, *, wall_s: float = 1000.0, **kwargs: Any) -> None:
        self.clock = SetClock(wall_s)
        self.hand = HandReceiver()
        journal = Journal(folder, limit_bytes=LIMIT_BYTES, segment_bytes=2000, clock=self.clock)
        super().__init__(journal, self.hand, **kwargs)


class FolderSubject:
    """Appends records to a journal of its own while no source is open, otherwise to the source's journal."""

    finite = False
    ordered = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._source: HandSource | None = None

    async def put(self, rows: list[dict[str, Any]]) -> None:
        await self._append([json.dumps(row).encode() for row in rows])

    async def put_undecodable(self, raw: bytes) -> None:
        await self._append([raw])

    async def _append(self, records: list[bytes]) -> None:
        if self._source is not None and self._source.hand.running:
            await self._source.journal.append(records)
            return
        journal = Journal(self._folder, limit_bytes=LIMIT_BYTES, segment_bytes=2000, clock=SystemClock())
        await journal.open()
        await journal.append(records)
        await journal.close()

    def make(self) -> JournaledSource:
        self._source = HandSource(self._folder)
        return self._source


class TestJournaledSource(SourceContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> FolderSubject:
        return FolderSubject(tmp_path / "journal")


async def opened(folder: Path, schema: pa.Schema = SCHEMA, **kwargs: Any) -> HandSource:
    source = HandSource(folder, **kwargs)
    await source.open(schema)
    return source


async def test_raw_records_come_as_they_are_with_their_topics(tmp_path: Path) -> None:
    schema = pa.schema([("_topic", pa.string()), ("_value", pa.binary())])
    source = await opened(tmp_path, schema, format="raw")
    await source.journal.append([b"\xff", b""], topics=["a/b", "c"])
    (chunk,) = await read(source, 2)
    assert chunk.batch.to_pylist() == [{"_topic": "a/b", "_value": b"\xff"}, {"_topic": "c", "_value": b""}]
    assert chunk.batch.schema == schema
    await source.close()


async def test_topics_stay_with_their_events_when_some_are_none(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("_topic", pa.string())])
    source = await opened(tmp_path, schema)
    records = [b'{"n": 1}', b"", b'{"n": "no"}', b'{"n": 4}', b"\xef\xbb\xbf"]
    await source.journal.append(records, topics=[f"t{n}" for n in range(5)])
    (chunk,) = await read(source, 5)
    assert chunk.batch.to_pylist() == [{"n": 1, "_topic": "t0"}, {"n": 4, "_topic": "t3"}]
    assert [(dead.record, dead.raw, dead.place) for dead in chunk.dead] == [
        (1, b"", "topic t1"),
        (2, b'{"n": "no"}', "topic t2"),
        (4, b"\xef\xbb\xbf", "topic t4"),
    ]
    await source.close()


@pytest.mark.parametrize(
    ("schema", "kind", "told"),
    [
        ([("_value", pa.string())], "raw", "_value BINARY"),
        ([("_value", pa.binary()), ("other", pa.int64())], "raw", "column other"),
        ([("_topic", pa.string())], "json", "not the only column"),
        ([("_topic", pa.int64()), ("n", pa.int64())], "json", "must be STRING"),
    ],
)
async def test_a_schema_that_cannot_be_filled_is_refused(
    tmp_path: Path, schema: list[tuple[str, pa.DataType]], kind: str, told: str
) -> None:
    source = HandSource(tmp_path, format=kind)
    with pytest.raises(SourceError, match=told):
        await source.open(pa.schema(schema))


async def test_the_backlog_tells_how_many_and_since_when(tmp_path: Path) -> None:
    source = await opened(tmp_path)
    assert source.backlog().records == 0
    for n in range(3):
        source.clock.wall_s = 1000.0 + n
        await source.journal.append([b'{"n": 1}', b'{"n": 2}'])
    backlog = source.backlog()
    assert (backlog.records, backlog.oldest_wall_s) == (6, 1000.0)
    chunk = await source.read(3, HUGE)
    assert chunk is not None
    assert chunk.more
    assert chunk.arrival_wall_s == pytest.approx(1000 + 1 / 3)
    backlog = source.backlog()
    assert (backlog.records, backlog.oldest_wall_s) == (3, 1001.0)
    chunk = await source.read(100, HUGE)
    assert chunk is not None
    assert not chunk.more
    assert source.backlog().records == 0
    await source.close()


async def test_what_was_received_comes_before_the_news_that_nothing_more_is(tmp_path: Path) -> None:
    source = await opened(tmp_path)
    await source.journal.append([b'{"n": 1}'])
    source.hand.failure = SourceError("the receiver died")
    assert await source.read(10, HUGE) is not None
    with pytest.raises(SourceError, match="the receiver died"):
        await source.read(10, HUGE)
    await source.close()


async def test_a_receiver_that_does_not_start_leaves_a_source_that_can_be_opened_again(tmp_path: Path) -> None:
    source = HandSource(tmp_path)
    source.hand.failure = SourceUnavailableError("the broker is away")
    with pytest.raises(SourceUnavailableError):
        await source.open(SCHEMA)
    source.hand.failure = None
    await source.open(SCHEMA)
    await source.journal.append([b'{"id": "a", "n": 1}'])
    assert events(await read(source, 1)) == [{"id": "a", "n": 1}]
    await source.close()


async def test_a_position_before_what_was_acknowledged_is_passed_over(tmp_path: Path) -> None:
    """Records that were not events are acknowledged without the run log, which names an earlier position."""
    source = await opened(tmp_path)
    for n in range(40):
        await source.journal.append([b'{"id": "%s", "n": %d}' % (b"x" * 100, n)])
    await source.acknowledge(Position(30))
    await source.close()
    again = await opened(tmp_path)
    await again.seek(Position(3))
    chunk = await again.read(100, HUGE)
    assert chunk is not None
    assert 3 < chunk.start.record == again.journal.first_record <= 30
    assert chunk.end.record == 40
    await again.close()


async def test_records_that_are_no_events_do_not_fill_the_journal_for_good(tmp_path: Path) -> None:
    """No run holds these records, so nothing acknowledges them: they are removed when the next records are read."""
    source = await opened(tmp_path)
    good = b'{"id": "%s", "n": 1}' % (b"x" * 1000)
    await source.journal.append([good])
    await read(source, 1)
    for _ in range(3):
        await source.journal.append([b"no event" * 100] * 10)
        assert (await read(source, 10))[0].batch.num_rows == 0
    assert await source.read(10, HUGE) is None
    assert source.journal.first_record == 0, "the event before them is not committed"
    await source.acknowledge(Position(1))
    assert source.journal.first_record >= 21
    await source.journal.append([b"no event" * 300])
    await read(source, 1)
    await source.journal.append([good])
    await read(source, 1)
    assert source.journal.first_record == 32
    await source.close()


async def test_a_chunk_of_no_events_is_not_given_up_before_the_next_is_asked_for(tmp_path: Path) -> None:
    source = await opened(tmp_path)
    await source.journal.append([b"no event" * 300])
    await source.journal.append([b"no event" * 300])
    (first,) = await read(source, 1)
    await source.acknowledge(Position())
    assert (await source.read_between(first.start, first.end)).dead == first.dead
    await source.close()


async def test_a_journal_that_is_older_than_the_run_log_is_told(tmp_path: Path) -> None:
    source = await opened(tmp_path)
    with pytest.raises(SourceError, match="restore the folder"):
        await source.seek(Position(5))
    await source.close()


async def test_a_journal_whose_files_are_gone_is_told(tmp_path: Path) -> None:
    source = await opened(tmp_path)
    for n in range(40):
        await source.journal.append([b'{"id": "%s", "n": %d}' % (b"x" * 100, n)])
    await source.close()
    min(tmp_path.glob("*.journal")).unlink()
    with pytest.raises(SourceError, match="the file with record 0 is missing"):
        await opened(tmp_path)
