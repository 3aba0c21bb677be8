from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.journal.deadletters import DeadLetterFile, dead_letter
from gateway.sources.base import Chunk
from gateway.sources.marks import JournalMark, Look, StreamsMark, looks_together
from gateway.sources.replayed import ReplayFiles, WithReplays
from gateway.sources.several.source import SeveralStreams
from gateway.sources.threaded import ThreadedSource
from infra.messages import STREAM, EventStream
from infra.rows.base import SourceError, SourceUnavailableError
from tests.support.source_data import HUGE, LinesSource

STREAMS = (
    EventStream(name="orders", columns=(("id", "orders.id"), ("n", "n"))),
    EventStream(name="payments", columns=(("n", "n"), ("id", "payments.id"), ("paid", "paid"))),
)
TABLE = pa.schema(
    [
        (STREAM, pa.string()),
        ("orders.id", pa.int64()),
        ("n", pa.int64()),
        ("payments.id", pa.string()),
        ("paid", pa.bool_()),
    ]
)
BAD = '{"id": [], "n": "no number"}'


def order(number: int) -> dict[str, Any]:
    return {"id": number, "n": 2 * number}


def payment(number: int) -> dict[str, Any]:
    return {"n": number, "id": f"p{number}", "paid": number % 2 == 0}


def in_common(stream: str, event: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(TABLE.names) | {STREAM: stream}
    return row | {name if name in TABLE.names else f"{stream}.{name}": value for name, value in event.items()}


def write(path: Path, events: list[dict[str, Any] | str]) -> None:
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in events))


def sources_in(folder: Path) -> dict[str, ThreadedSource]:
    return {stream.name: ThreadedSource(LinesSource(folder / f"{stream.name}.jsonl")) for stream in STREAMS}


def several(folder: Path) -> SeveralStreams:
    return SeveralStreams(sources_in(folder), STREAMS)


async def rest(source: SeveralStreams | WithReplays, max_records: int = 1000) -> list[Chunk]:
    chunks = []
    while not await source.finished():
        if (chunk := await source.read(max_records, HUGE)) is not None:
            chunks.append(chunk)
    return chunks


def rows(chunks: list[Chunk], stream: str) -> list[dict[str, Any]]:
    return [row for chunk in chunks for row in chunk.batch.to_pylist() if row[STREAM] == stream]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    orders=st.lists(st.booleans(), max_size=30),
    payments=st.lists(st.booleans(), max_size=30),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    stops=st.lists(st.integers(0, 12), max_size=4),
)
def test_each_stream_comes_whole_and_in_order_however_often_it_is_begun_again(
    tmp_path: Path, orders: list[bool], payments: list[bool], sizes: list[int], stops: list[int]
) -> None:
    """False is a record that is no event; after each stop the next start continues where the last noted chunk ended."""
    made = {"orders": (orders, order), "payments": (payments, payment)}
    for name, (good, make) in made.items():
        write(tmp_path / f"{name}.jsonl", [make(at) if each else BAD for at, each in enumerate(good)])

    async def run() -> tuple[list[Chunk], list[Chunk]]:
        noted: list[Chunk] = []
        for stop in [*stops, None]:
            source = several(tmp_path)
            await source.open(TABLE)
            await source.seek(noted[-1].end if noted else Position())
            while not await source.finished() and (stop is None or len(noted) < stop):
                chunk = await source.read(sizes[len(noted) % len(sizes)], HUGE)
                noted += [chunk] if chunk is not None else []
            await source.read(3, HUGE)  # read, but lost with the process
            await source.close()
        source = several(tmp_path)
        await source.open(TABLE)
        again = [await source.read_between(each.start, each.end) for each in reversed(noted)]
        await source.close()
        return noted, again[::-1]

    noted, again = asyncio.run(run())
    for name, (good, make) in made.items():
        assert rows(noted, name) == [in_common(name, make(at)) for at, each in enumerate(good) if each]
        dead = [record.record for chunk in noted for record in chunk.dead if record.stream == name]
        assert dead == [at for at, each in enumerate(good) if not each]
    assert [chunk.batch for chunk in again] == [chunk.batch for chunk in noted]
    assert [(chunk.start, chunk.end, chunk.dead) for chunk in again] == [(c.start, c.end, c.dead) for c in noted]
    ends = [0, *(chunk.end.record for chunk in noted)]
    assert [chunk.start.record for chunk in noted] == ends[:-1]
    assert ends[-1] == len(orders) + len(payments)


async def test_streams_take_turns_and_an_empty_one_is_asked_less_often(tmp_path: Path) -> None:
    write(tmp_path / "orders.jsonl", [order(at) for at in range(100)])
    write(tmp_path / "payments.jsonl", [payment(at) for at in range(20)])
    sources, asked = sources_in(tmp_path), list[str]()
    source = SeveralStreams(sources, STREAMS)
    for name, each in sources.items():
        each.read = _counted(name, each.read, asked)  # type: ignore[method-assign]
    await source.open(TABLE)
    chunks = await rest(source, 10)
    assert [chunk.batch.column(STREAM)[0].as_py() for chunk in chunks][:4] == ["orders", "payments"] * 2
    assert asked.count("orders") >= 10
    assert asked.count("payments") <= 2 + 1 + 2


def _counted(name: str, read: Callable[..., Any], asked: list[str]) -> Callable[..., Any]:
    async def counted(max_records: int, max_bytes: int) -> Chunk | None:
        asked.append(name)
        found: Chunk | None = await read(max_records, max_bytes)
        return found

    return counted


async def test_an_acknowledgement_reaches_all_streams_although_one_is_away(tmp_path: Path) -> None:
    sources = sources_in(tmp_path)
    told: dict[str, Position] = {}

    async def away(position: Position) -> None:
        raise SourceUnavailableError(f"not now: {position.record}")

    async def there(position: Position) -> None:
        told["payments"] = position

    sources["orders"].acknowledge = away  # type: ignore[method-assign]
    sources["payments"].acknowledge = there  # type: ignore[method-assign]
    positions = {"orders": Position(3), "payments": Position(4)}
    with pytest.raises(SourceUnavailableError, match="not now: 3"):
        await SeveralStreams(sources, STREAMS).acknowledge(Position(record=7, streams=positions))
    assert told == {"payments": Position(4)}


async def test_a_run_of_other_sources_is_not_read_again(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="restore the sources of the config"):
        await several(tmp_path).read_between(Position(), Position(record=4, streams={"returns": Position(4)}))


async def test_letters_of_each_stream_are_replayed_as_its_events(tmp_path: Path) -> None:
    for stream in STREAMS:
        write(tmp_path / f"{stream.name}.jsonl", [])
    letters = DeadLetterFile(tmp_path / "dead-letters.jsonl")
    contents = {
        "orders": [json.dumps(order(1)), BAD],
        "payments": [json.dumps(payment(1)), json.dumps(payment(2))],
    }
    for name, raws in contents.items():
        letters.add([dead_letter("why", raw.encode(), 1.0, record=at, stream=name) for at, raw in enumerate(raws)])
    failed = [in_common("orders", order(5)), in_common("returns", {"n": 1})]
    letters.add([dead_letter("why", json.dumps(row).encode(), 1.0, seq=at) for at, row in enumerate(failed)])
    assert letters.count == 6
    assert letters.move_out(tmp_path / "replay", 0) == 6
    source = WithReplays(several(tmp_path), ReplayFiles(tmp_path / "replay"), streams=STREAMS)
    await source.open(TABLE)
    chunks = await rest(source)
    assert rows(chunks, "orders") == [in_common("orders", order(1)), in_common("orders", order(5))]
    assert rows(chunks, "payments") == [in_common("payments", payment(at)) for at in (1, 2)]
    dead = [record for chunk in chunks for record in chunk.dead]
    assert [(record.stream, record.replayed) for record in dead] == [("orders", 1), ("", 5)]
    assert "its _stream is 'returns'" in dead[1].reason
    for chunk in chunks:
        again = await source.read_between(chunk.start, chunk.end)
        assert (again.batch, again.dead) == (chunk.batch, chunk.dead)
    await source.close()


def test_a_letter_of_one_stream_does_not_hide_one_of_another(tmp_path: Path) -> None:
    path = tmp_path / "dead-letters.jsonl"
    DeadLetterFile(path).add([dead_letter("why", b"x", 1.0, record=9, stream="orders")])
    letters = DeadLetterFile(path)
    assert letters.move_out(tmp_path / "replay", 0) == 1
    letters = DeadLetterFile(path)
    letters.add([dead_letter("why", b"x", 1.0, record=9, stream="orders")])
    letters.add([dead_letter("why", b"y", 1.0, record=3, stream="payments")])
    letters.add([dead_letter("why", b"y", 1.0, record=3, stream="payments")])
    assert letters.count == 1


def test_a_stream_whose_source_changed_is_begun_anew_and_the_others_go_on() -> None:
    mark = JournalMark("here")
    forgotten: list[str] = []
    looks = {
        "orders": Look(mark, "it is another one", reset=lambda: forgotten.append("orders")),
        "payments": Look(mark, note="it has moved"),
    }
    known = StreamsMark({"orders": mark, "payments": mark, "returns": mark})
    look = looks_together(looks, known)
    assert (look.mark, look.changed) == (StreamsMark({"orders": mark, "payments": mark}), "orders: it is another one")
    assert look.note == "payments: it has moved"
    streams = {"orders": Position(5), "payments": Position(7, offset=3), "returns": Position(1)}
    assert look.kept(Position(13, streams=streams, replayed=2)) == Position(
        7, streams={"orders": Position(), "payments": Position(7, offset=3)}, replayed=2
    )
    look.reset()
    assert forgotten == ["orders"]
    other = looks_together({name: Look(mark) for name in looks}, mark)
    assert other.changed == "it is another kind of source"
    assert other.kept(Position(5, offset=9, replayed=1)) == Position(replayed=1)
