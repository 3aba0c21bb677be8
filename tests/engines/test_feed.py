"""The queue between link and Spark, and the socket through which Spark's source process requests rows."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator
from multiprocessing.connection import Client
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from engines.streaming.feed import Feed, FeedClosed, FeedServer, pack, stream_of
from engines.streaming.source import RunReader
from engines.streaming.tables import unpack, without
from infra.clock import SystemClock

SCHEMA = pa.schema([("n", pa.int32()), ("text", pa.string())])


def batch(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(range(count), pa.int32()), pa.array(["x" * 100] * count)], schema=SCHEMA
    )


def feed(first: int = 0, max_items: int = 3, max_bytes: int = 1 << 20) -> Feed:
    return Feed(first, max_items, max_bytes, SystemClock())


def test_the_first_micro_batches_end_where_they_have_to() -> None:
    queue = Feed(4, 3, 1 << 20, SystemClock(), ends=(4, 6, 11))
    for length in (2, 2):
        queue.put([], length=length)
    assert queue.latest(4, 0.0) == 6, "a later run that is here already does not join"
    assert queue.latest(6, 0.0) == 6, "runs are missing"
    for _ in range(4):
        queue.put([], length=1)
    assert queue.latest(6, 0.0) == 11, "also with more runs than a micro-batch may have otherwise"
    assert queue.latest(11, 0.0) == 12


def test_equal_runs_are_in_different_micro_batches() -> None:
    queue = Feed(0, 3, 1 << 20, SystemClock(), kind_of=lambda item: item.tag)
    for tag in "abacda":
        queue.put([], tag)
    assert [queue.latest(at, 0.0) for at in (0, 2, 5)] == [2, 5, 6]


@pytest.fixture
def server() -> Iterator[FeedServer]:
    server = FeedServer()
    yield server
    server.close()


@pytest.mark.parametrize("count", [0, 1, 2, 999])
def test_parts_hold_exactly_the_rows(count: int) -> None:
    parts = pack(batch(count), part_bytes=2_000)
    assert unpack(parts, SCHEMA) == batch(count)
    assert (len(parts) > 1) is (count > 100)


def test_a_slice_of_a_large_batch_is_packed_by_its_own_size() -> None:
    parts = pack(batch(1_000).slice(10, 5))
    assert sum(part.size for part in parts) < 5_000
    assert len(pack(batch(10_000).slice(0, 500), part_bytes=60_000)) == 1


def test_runs_without_some_of_their_rows_take_the_place_of_those_that_were_planned() -> None:
    queue = feed()
    for count in (3, 0, 4):
        queue.put(pack(batch(count)), tag=f"{count} rows", length=max(1, count))
    planned = queue.batch(0, 8)
    queue.replace(without(planned, {1, 3, 6}, SCHEMA))
    again = queue.batch(0, 8)
    assert [unpack(item.parts, SCHEMA).column("n").to_pylist() for item in again] == [[0, 2], [], [1, 2]]
    assert [(item.start, item.end, item.tag) for item in again] == [
        (0, 3, "3 rows"),
        (3, 4, "0 rows"),
        (4, 8, "4 rows"),
    ]


def test_a_micro_batch_takes_no_more_runs_than_allowed() -> None:
    queue = feed(first=7, max_items=3)
    for _ in range(5):
        queue.put([])
    assert queue.latest(7) == 10
    assert [item.start for item in queue.batch(7, 10)] == [7, 8, 9]
    assert queue.planned == queue.batch(7, 10)
    queue.release(10)
    assert queue.latest(10) == 12


def test_an_idle_feed_answers_late_with_where_it_is() -> None:
    assert feed().latest(0, wait_s=0.01) == 0


def test_a_run_wakes_whoever_waits() -> None:
    queue = feed()
    found: list[int] = []
    waiter = threading.Thread(target=lambda: found.append(queue.latest(0, wait_s=60)))
    waiter.start()
    queue.put([])
    waiter.join(30)
    assert found == [1]


def test_a_batch_planned_before_a_restart_waits_for_its_runs() -> None:
    queue = feed(first=10)
    found: list[int] = []
    waiter = threading.Thread(target=lambda: found.extend(item.end for item in queue.batch(10, 40)))
    waiter.start()
    queue.put([], length=10)
    queue.put([], length=20)
    waiter.join(30)
    assert found == [20, 40]


def test_a_batch_across_run_borders_is_an_error() -> None:
    queue = feed()
    queue.put([], length=10)
    queue.put([], length=10)
    with pytest.raises(FeedClosed, match="run borders"):
        queue.batch(0, 15)


def test_a_full_feed_holds_up_the_link_until_something_is_done() -> None:
    queue = feed(max_bytes=1_000)
    part = stream_of(batch(100))
    queue.put([part])
    blocked = threading.Thread(target=lambda: queue.put([part]))
    blocked.start()
    blocked.join(0.05)
    assert blocked.is_alive()
    assert queue.latest(0, wait_s=0) == 1
    queue.batch(0, 1)
    queue.release(1)
    blocked.join(30)
    assert not blocked.is_alive()


def test_closing_frees_a_blocked_writer() -> None:
    queue = feed(max_bytes=1_000)
    part = stream_of(batch(100))
    queue.put([part])
    said: list[str] = []

    def put() -> None:
        try:
            queue.put([part])
        except FeedClosed as closed:
            said.append(str(closed))

    blocked = threading.Thread(target=put)
    blocked.start()
    queue.close("over")
    blocked.join(30)
    assert said == ["over"]


def test_dropping_keeps_positions_and_what_spark_has_planned() -> None:
    queue = feed(max_items=1)
    part = stream_of(batch(1))
    for name in "abc":
        queue.put([part], tag=name)
    queue.batch(0, 1)
    assert [item.tag for item in queue.drop_unplanned()] == ["b", "c"]
    assert [item.tag for item in queue.planned] == ["a"]
    queue.put([part], tag="d")
    assert [(item.tag, len(item.parts)) for item in queue.batch(0, 4)] == [("a", 1), (None, 0), (None, 0), ("d", 1)]


def test_only_its_owner_may_open_the_socket(server: FeedServer) -> None:
    socket = Path(server.address)
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700


def test_a_reader_sees_what_the_feed_has(server: FeedServer) -> None:
    queue = feed(first=5)
    server.add("q", queue)
    reader = RunReader(server.address, "q")
    assert reader.initialOffset() == {"at": 5}
    queue.put(pack(batch(4)))
    queue.put(pack(batch(0)))
    end = reader.latestOffset({"at": 5}, reader.getDefaultReadLimit())
    assert end == {"at": 7}
    parts = reader.partitions({"at": 5}, end)
    assert [list(reader.read(part)) for part in parts] == [[batch(4)]]
    reader.commit(end)
    reader.stop()


def test_all_readers_of_a_query_have_the_same_micro_batches_although_runs_arrive_meanwhile(server: FeedServer) -> None:
    queue = feed()
    server.add("q", queue)
    first, second = RunReader(server.address, "q"), RunReader(server.address, "q")
    limit = first.getDefaultReadLimit()
    assert first.latestOffset({"at": 0}, limit) == {"at": 0}
    queue.put(pack(batch(4)))
    assert second.latestOffset({"at": 0}, limit) == {"at": 0}, "the first one has not seen this run"
    assert first.latestOffset({"at": 0}, limit) == {"at": 1}
    queue.put(pack(batch(4)))
    assert second.latestOffset({"at": 0}, limit) == {"at": 1}, "nor this one"
    assert len(first.partitions({"at": 0}, {"at": 1})) == len(second.partitions({"at": 0}, {"at": 1})) == 1
    first.stop()
    second.stop()


def test_a_stream_that_goes_on_with_a_feed_has_readers_of_its_own(server: FeedServer) -> None:
    queue = feed()
    server.add("q", queue)
    before = RunReader(server.address, "q")
    before.latestOffset({"at": 0}, before.getDefaultReadLimit())
    server.forget("q")
    server.add("again", queue)
    queue.put(pack(batch(4)))
    after = RunReader(server.address, "again")
    assert after.latestOffset({"at": 0}, after.getDefaultReadLimit()) == {"at": 1}
    before.stop()
    after.stop()


def test_a_reader_of_a_closed_feed_is_told_why(server: FeedServer) -> None:
    server.add("q", feed())
    reader = RunReader(server.address, "q")
    reader.initialOffset()
    server.remove("q", "the query was stopped")
    with pytest.raises(RuntimeError, match="closed feed q: it is not open"):
        reader.latestOffset({"at": 0}, reader.getDefaultReadLimit())
    reader.stop()


def test_a_reader_on_an_executor_needs_no_socket() -> None:
    partition = InputPartition(pack(batch(3))[0].to_pybytes())
    assert list(RunReader("/nowhere", "q").read(partition)) == [batch(3)]


def test_nonsense_on_the_socket_ends_that_connection_only(server: FeedServer) -> None:
    server.add("q", feed())
    with Client(server.address, "AF_UNIX") as connection:
        connection.send_bytes(json.dumps({"feed": "q", "op": "sing"}).encode())
        assert "unknown question" in json.loads(connection.recv_bytes())["error"]
        connection.send_bytes(b"{")
        with pytest.raises(EOFError):
            connection.recv_bytes()
    assert RunReader(server.address, "q").initialOffset() == {"at": 0}
