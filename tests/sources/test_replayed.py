from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gateway.connectors.position import Position
from gateway.journal.deadletters import DeadLetter, DeadLetterFile, dead_letter
from gateway.sources.base import Chunk
from gateway.sources.replayed import ReplayFiles, WithReplays
from gateway.sources.threaded import ThreadedSource
from infra import failpoints
from infra.rows.base import DeadRecord, SourceError
from tests.support.source_data import SCHEMA, LinesSource, line

HUGE = 1 << 40


class Place:
    """A file of events, and the dead letters of their query."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "in.jsonl").write_bytes(b"".join(line(i) + b"\n" for i in range(10)))
        self.letters = DeadLetterFile(folder / "dead-letters.jsonl")
        self.sources: list[WithReplays] = []

    async def opened(self, schema: pa.Schema = SCHEMA) -> WithReplays:
        main = ThreadedSource(LinesSource(self.folder / "in.jsonl"))
        source = WithReplays(main, ReplayFiles(self.folder / "replay"))
        self.sources.append(source)
        await source.open(schema)
        return source

    def replay(self, *raws: bytes, first: int = 100) -> int:
        """Add these dead letters, and request their replay."""
        self.letters.add([dead_letter("why", raw, 1.0, record=first + i, offset=7) for i, raw in enumerate(raws)])
        return self.letters.move_out(self.folder / "replay", 0)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    yield place
    for source in place.sources:
        await source.close()


async def everything(source: WithReplays, max_records: int = 1000, max_bytes: int = HUGE) -> list[Chunk]:
    chunks = []
    while (chunk := await source.read(max_records, max_bytes)) is not None:
        chunks.append(chunk)
    assert await source.finished()
    return chunks


def numbers(chunks: list[Chunk]) -> list[int]:
    return [row["n"] for chunk in chunks for row in chunk.batch.to_pylist()]


def dead(chunks: list[Chunk]) -> list[DeadRecord]:
    return [record for chunk in chunks for record in chunk.dead]


async def test_letters_come_before_what_the_source_has_next(place: Place) -> None:
    source = await place.opened()
    first = await source.read(4, HUGE)
    assert first is not None
    place.replay(b'{"id": "a", "n": 100}', b'{"id": "b",\r\n "n": 101}')
    assert source.waiting == 0
    await source.look()
    assert source.waiting == 2
    assert not await source.finished()
    chunks = [first, *await everything(source, max_records=4)]
    assert numbers(chunks) == [0, 1, 2, 3, 100, 101, 4, 5, 6, 7, 8, 9]
    assert (chunks[1].start, chunks[1].end) == (first.end, Position(4, 0, first.end.offset, replayed=2))
    assert chunks[2].start == chunks[1].end
    assert chunks[-1].end.replayed == 2


async def test_a_letter_that_fails_again_is_a_dead_record_with_its_bytes_and_where_it_was(place: Place) -> None:
    raws = [b"\xff oops", b'{"id": "a", "n": 1}', b"{}" * 40_000, b'{"id": "a", "n": "x"}', b""]
    place.replay(*raws)
    source = await place.opened()
    chunks = await everything(source, max_records=2)
    assert numbers(chunks) == [1, *range(10)]
    found = dead(chunks)
    assert [(record.replayed, record.raw) for record in found] == [
        (0, raws[0]),
        (2, raws[2][: 1 << 16]),
        (3, raws[3]),
        (4, raws[4]),
    ]
    assert found[1].raw_bytes == 80_000
    assert found[0].place == "record 100, offset 7"
    assert found[0].reason == "replayed: the line is not one JSON object"
    assert found[1].reason == "replayed: its content was not kept whole; why"
    assert found[3].reason == "replayed: it has no content; why"


async def test_between_two_positions_lies_always_the_same(place: Place) -> None:
    place.replay(*(b'{"id": "a", "n": %d}' % i if i % 3 else b"oops" for i in range(100, 120)))
    place.replay(*(b'{"id": "a", "n": %d}' % i for i in range(120, 130)), first=200)
    source = await place.opened()
    chunks = await everything(source, max_records=7)
    assert numbers(chunks) == [*(i for i in range(100, 120) if i % 3), *range(120, 130), *range(10)]
    for again in (source, await place.opened()):
        for chunk in [*chunks[::2], *reversed(chunks)]:
            repeated = await again.read_between(chunk.start, chunk.end)
            assert repeated.batch.equals(chunk.batch)
            assert (repeated.start, repeated.end, repeated.dead) == (chunk.start, chunk.end, chunk.dead)
        await again.seek(chunks[1].end)
        assert numbers(await everything(again)) == numbers(chunks[2:])


async def test_a_chunk_of_letters_is_bounded_in_bytes(place: Place) -> None:
    place.replay(*(b'{"id": "%s", "n": %d}' % (b"x" * 1000, i) for i in range(100)))
    chunks = await everything(await place.opened(), max_bytes=5000)
    assert all(chunk.batch.num_rows <= 5 for chunk in chunks if chunk.end.record == 0)


async def test_a_file_is_removed_once_all_its_letters_are_acknowledged(place: Place) -> None:
    place.replay(b'{"n": 1}', b'{"n": 2}')
    place.replay(b'{"n": 3}', first=200)
    source = await place.opened()
    await everything(source, max_records=1)
    replay = place.folder / "replay"
    for replayed, left in ((0, 2), (1, 2), (2, 1), (3, 0)):
        await source.acknowledge(Position(replayed=replayed))
        assert len(list(replay.iterdir())) == left
    assert place.replay(b'{"n": 4}', first=300) == 1
    await source.look()
    assert numbers(await everything(source)) == [4]


async def test_after_a_restart_the_numbers_go_on_although_all_files_are_gone(place: Place) -> None:
    place.replay(b'{"n": 1}')
    source = await place.opened()
    await everything(source)
    await source.acknowledge(Position(replayed=1))
    place.letters = DeadLetterFile(place.folder / "dead-letters.jsonl")
    place.replay(b'{"n": 2}', first=200)
    again = await place.opened()
    # What held no event need not be in the log after a crash: the position may be an old one.
    await again.seek(Position(10, 0, (place.folder / "in.jsonl").stat().st_size, replayed=0))
    (chunk,) = await everything(again)
    assert numbers([chunk]) == [2]
    assert (chunk.start.replayed, chunk.end.replayed) == (0, 2)


async def test_a_missing_file_is_an_error_that_says_so(place: Place) -> None:
    place.replay(b'{"n": 1}')
    source = await place.opened()
    (chunk, _) = await everything(source)
    next((place.folder / "replay").iterdir()).unlink()
    again = await place.opened()
    with pytest.raises(SourceError, match="dead letters 0 to 0 were replayed, but their file is gone"):
        await again.read_between(chunk.start, chunk.end)


async def test_a_damaged_file_is_named(place: Place) -> None:
    place.replay(b'{"n": 1}')
    next((place.folder / "replay").iterdir()).write_bytes(b"{oops\n")
    with pytest.raises(SourceError, match=r"000000000000\.jsonl is damaged"):
        await (await place.opened()).read(1, HUGE)


async def test_with_a_schema_that_json_cannot_carry_all_letters_stay_dead(place: Place) -> None:
    class Nothing(LinesSource):
        def open(self, schema: pa.Schema) -> None:
            super().open(SCHEMA)

    place.replay(b'{"m": {"a": 1}}')
    source = WithReplays(ThreadedSource(Nothing(place.folder / "in.jsonl")), ReplayFiles(place.folder / "replay"))
    await source.open(pa.schema([("m", pa.map_(pa.string(), pa.int64()))]))
    chunk = await source.read(1, HUGE)
    assert chunk is not None
    assert (chunk.batch.num_rows, chunk.end.replayed) == (0, 1)
    assert chunk.dead[0].reason.startswith("replayed: column m: JSON lines cannot carry map")
    await source.close()


@pytest.mark.parametrize("place_of_failure", ["noted", "moved", "after"])
async def test_a_move_whose_end_is_unknown_is_seen_to_before_anything_is_read(
    place: Place, monkeypatch: pytest.MonkeyPatch, place_of_failure: str
) -> None:
    source = await place.opened()
    failing = failpoints.installed(f"deadletters.replay.{place_of_failure}=eio@1")
    with failing, pytest.raises(OSError, match="failpoint"):
        place.replay(b'{"n": 100}')

    def fail(_: Path) -> None:
        raise OSError(5, "Input/output error")

    if place_of_failure != "noted":
        with monkeypatch.context() as broken:
            broken.setattr("gateway.sources.replayed.sync_folder", fail)
            with pytest.raises(OSError, match="Input/output"):
                await source.look()
        assert source.waiting == 0
    place.letters.move_out(place.folder / "replay", 0)
    await source.look()
    assert numbers(await everything(source)) == [100, *range(10)]


def letter_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_bytes().splitlines()] if path.exists() else []


def test_a_letter_is_plain_json_for_whoever_reads_it(place: Place) -> None:
    place.letters.add([DeadLetter("why", "{}", record=1, offset=2), dead_letter("why", b"\xff", 0.0, seq=3)])
    assert letter_rows(place.folder / "dead-letters.jsonl") == [
        {"reason": "why", "raw": "{}", "record": 1, "offset": 2},
        {"reason": "why", "seq": 3, "raw_base64": "/w==", "at": "1970-01-01T00:00:00.000Z"},
    ]
