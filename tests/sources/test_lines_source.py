from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.sources.base import Chunk
from infra.files.lines import LineLimits
from infra.rows.base import SourceError
from tests.support.source_data import (
    HUGE,
    SCHEMA,
    LinesSource,
    assert_consecutive,
    assert_seekable,
    dead,
    line,
    read_all,
    rows,
    write,
)

ENDINGS = [".jsonl", ".jsonl.gz", ".jsonl.zst"]


def opened(path: Path, **kwargs: object) -> LinesSource:
    source = LinesSource(path, **kwargs)  # type: ignore[arg-type]
    source.open(SCHEMA)
    return source


@pytest.fixture(params=ENDINGS)
def ending(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_line_is_an_event_and_can_be_read_again_from_any_run(tmp_path: Path, ending: str) -> None:
    content = b"".join(line(i) + b"\n" for i in range(1000))
    source = opened(write(tmp_path / f"in{ending}", content), loops=3, id_field="id")
    chunks = read_all(source, 170)
    assert [row["n"] for row in rows(chunks)] == [*range(1000)] * 3
    assert len({(row["id"], row["n"]) for row in rows(chunks)}) == 3000
    assert_consecutive(chunks)
    assert all(chunk.start.offset == 0 for chunk in chunks if chunk.start.record % 1000 == 0)
    assert_seekable(source, chunks)
    source.close()


@pytest.mark.parametrize("last_newline", [b"", b"\n"])
def test_bad_lines_are_told_with_record_offset_reason_and_content(
    tmp_path: Path, ending: str, last_newline: bytes
) -> None:
    lines = [line(0), b"", b"oops", line(3), b'{"n": "x"}', b'{"n": 1}{"n": 2}', b"\xff\xfe", b"  ", line(8), b"null"]
    offsets = [sum(len(text) + 1 for text in lines[:i]) for i in range(len(lines))]
    source = opened(write(tmp_path / f"in{ending}", b"\n".join(lines) + last_newline))
    chunks = read_all(source, 3)
    assert [row["n"] for row in rows(chunks)] == [0, 3, 8]
    assert [(d.record, d.offset, d.raw) for d in dead(chunks)] == [(i, offsets[i], lines[i]) for i in (2, 4, 5, 6, 9)]
    assert all(d.reason for d in dead(chunks))
    assert chunks[-1].end.record == len(lines)
    assert_seekable(source, chunks)
    source.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(
        st.one_of(st.integers(0, 99).map(line), st.sampled_from([b"", b"{", b"null", b" ", b"\xff"])), max_size=30
    ),
    last_newline=st.booleans(),
    cuts=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 120)), min_size=1, max_size=9),
    loops=st.integers(1, 3),
    block=st.integers(1, 64),
    packed=st.sampled_from(ENDINGS),
)
def test_any_cut_gives_the_same_events(
    tmp_path: Path,
    texts: list[bytes],
    last_newline: bool,
    cuts: list[tuple[int, int]],
    loops: int,
    block: int,
    packed: str,
) -> None:
    content = b"\n".join(texts) + (b"\n" if last_newline and texts else b"")
    path = write(tmp_path / f"in{packed}", content)
    whole = opened(path, loops=loops, id_field="id")
    expected = read_all(whole)
    whole.close()
    source = opened(path, loops=loops, id_field="id", limits=LineLimits(block_bytes=block))
    chunks: list[Chunk] = []
    while (chunk := source.read(*cuts[len(chunks) % len(cuts)])) is not None:
        chunks.append(chunk)
    assert source.finished
    assert rows(chunks) == rows(expected)
    assert dead(chunks) == dead(expected)
    assert_consecutive(chunks)
    if chunks:
        assert_seekable(source, chunks)
    source.close()


def test_bytes_bound_a_chunk_by_whole_lines(tmp_path: Path) -> None:
    content = b"".join(line(7 * i) + b"\n" for i in range(100))
    source = opened(write(tmp_path / "in.jsonl", content))
    chunks = read_all(source, HUGE, 100)
    assert all(chunk.end.offset - chunk.start.offset < 100 + len(line(700)) + 1 for chunk in chunks)
    assert rows(chunks) == [{"id": "id-", "n": 7 * i} for i in range(100)]
    assert len(read_all_again(source, 1)) == 100
    source.close()


def read_all_again(source: LinesSource, max_bytes: int) -> list[object]:
    source.seek(Position())
    return [*read_all(source, HUGE, max_bytes)]


@pytest.mark.parametrize("where", ["start", "middle", "end without newline"])
def test_a_line_over_the_limit_is_dead_and_never_held_whole(tmp_path: Path, ending: str, where: str) -> None:
    limits = LineLimits(block_bytes=1_000, line_bytes=5_000, raw_kept_bytes=1_000)
    long = b'{"id": "' + b"y" * 50_000 + b'"}'
    good = [line(0), line(1)]
    lines = {"start": [long, *good], "middle": [good[0], long, good[1]], "end without newline": [*good, long]}[where]
    content = b"\n".join(lines) + (b"" if where.startswith("end") else b"\n")
    source = opened(write(tmp_path / f"in{ending}", content), limits=limits)
    chunks = read_all(source, 2)
    (told,) = dead(chunks)
    at = lines.index(long)
    assert (told.record, told.offset) == (at, sum(len(text) + 1 for text in lines[:at]))
    assert told.reason == "the line is longer than 5000 bytes"
    assert told.raw == long[:1_000]
    assert [row["n"] for row in rows(chunks)] == [0, 1]
    assert chunks[-1].end.offset == len(content)
    assert_seekable(source, chunks)
    source.close()


def test_a_line_of_just_the_limit_is_an_event(tmp_path: Path) -> None:
    text = b'{"id": "' + b"y" * 90 + b'"}'
    for block in (1, 7, 99, 100, 101, 1000):
        limits = LineLimits(block_bytes=block, line_bytes=len(text))
        source = opened(write(tmp_path / "in.jsonl", text + b"\n" + text + b"x\n" + text), limits=limits)
        chunks = read_all(source)
        assert len(rows(chunks)) == 2
        assert [(d.record, d.offset) for d in dead(chunks)] == [(1, len(text) + 1)]
        source.close()


@pytest.mark.parametrize("loops", [1, 1_000_000_000])
def test_an_empty_file_has_no_events_however_often_it_is_played(tmp_path: Path, ending: str, loops: int) -> None:
    source = opened(write(tmp_path / f"in{ending}", b""), loops=loops)
    assert read_all(source) == []
    source.close()


def test_it_is_finished_right_after_its_last_record(tmp_path: Path, ending: str) -> None:
    source = opened(write(tmp_path / f"in{ending}", line(0) + b"\n" + line(1) + b"\n"), loops=2)
    for _ in range(3):
        assert not source.finished
        assert source.read(1, HUGE) is not None
    assert not source.finished
    assert source.read(1, HUGE) is not None
    assert source.finished
    assert source.read(1, HUGE) is None
    source.close()


def test_a_packed_file_that_is_cut_off_or_damaged_is_an_error_that_names_it(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(line(i) + b"\n" for i in range(100_000)))
    path = tmp_path / "in.jsonl.gz"
    for content in (whole[:-10], whole[: len(whole) // 2], whole[:1000] + b"damaged" + whole[1007:]):
        path.write_bytes(content)
        source = opened(path)
        with pytest.raises(SourceError, match=r"in\.jsonl\.gz cannot be read"):
            read_all(source)
        source.close()


@pytest.mark.parametrize("frames", ["one", "two"])
@pytest.mark.parametrize("checksum", [False, True])
def test_a_zst_is_whole_or_an_error_wherever_it_is_cut(tmp_path: Path, frames: str, checksum: bool) -> None:
    content = b"".join(line(i) + b"\n" for i in range(50))
    compressor = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=False)
    first, second = compressor.compress(content), compressor.compress(content)
    skippable = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"xyz"
    packed = first + skippable + second if frames == "two" else first
    path = tmp_path / "in.jsonl.zst"
    between = {0, len(first), len(first + skippable), len(packed)}
    for kept in range(len(packed) + 1):
        path.write_bytes(packed[:kept])
        source = opened(path)
        if kept in between:
            assert len(rows(read_all(source))) == 50 * (kept >= len(first)) + 50 * (kept > len(first + skippable))
        else:
            with pytest.raises(SourceError, match="cannot be read to its end"):
                read_all(source)
        source.close()
