"""The answers of the HTTP source, and what the journal then has."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import ssl
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import zstandard

from gateway.config.connectors.http import HttpSourceConfig
from gateway.connectors.position import Position
from gateway.sources.choose import SourceContext, make_source
from gateway.sources.http.httpsource import HttpReceiver
from gateway.sources.journaled import JournaledSource
from infra.clock import SystemClock
from infra.rows.base import SourceError
from tests.connectors.http_data import Site, parts_of, server_certificate, site
from tests.connectors.journal_data import HUGE, SetClock, everything
from tests.connectors.source_contract import SCHEMA, events, read
from tests.support.waiting import DEADLINE_S, until

TWO = b'{"id": "a", "n": 1}\r\n\n  {"id": "b", "n": 2}'


async def test_a_request_is_answered_with_how_many_records_are_safe(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        status, answer, _ = await at.post(TWO)
        assert (status, answer) == (200, {"records": 2, "duplicate": False})
        assert await everything(at.journal) == [b'{"id": "a", "n": 1}', b'  {"id": "b", "n": 2}']
        assert events(await read(at.source, 2)) == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


@pytest.mark.parametrize("body", [b"", b"\n\r\n  \n"])
async def test_an_empty_body_is_refused(tmp_path: Path, body: bytes) -> None:
    async with site(tmp_path) as at:
        status, answer, _ = await at.post(body)
        assert status == 400
        assert "the body is empty" in answer["error"]
        assert at.journal.next_record == 0


async def test_a_short_help_for_who_only_looks(tmp_path: Path) -> None:
    async with site(tmp_path, token="secret", remember_keys="1h") as at:
        async with at.client.get(at.url) as answer:
            assert answer.status == 200
            assert "Idempotency-Key" in (text := await answer.text())
            assert "3600 s" in text
        async with at.client.head(at.url) as answer:
            assert answer.status == 200
        async with at.client.put(at.url, data=TWO) as answer:
            assert answer.status == 405
        async with at.client.post(at.url + "/else", data=TWO) as answer:
            assert answer.status == 404


# -------------------------------------------------------------------------------------------------------- dead letters

BROKEN = [b'{"id": "a", "n": 1}', b"{broken", b'{"id": "b", "n": "two"}', b'{"id": "c", "n": 3}', b"null"]


async def test_lines_that_are_no_events_are_counted_in_the_answer(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        status, answer, _ = await at.post(b"\n".join(BROKEN))
        assert (status, answer["records"], answer["duplicate"]) == (200, 5, False)
        assert (answer["taken"], answer["dead_lettered"]) == (2, 3)
        assert answer["dead_letters"] == str(tmp_path / "dead-letters.jsonl")
        chunks = await read(at.source, 5)
        dead = [record for chunk in chunks for record in chunk.dead]
        assert [record.raw for record in dead] == [BROKEN[1], BROKEN[2], BROKEN[4]]
        assert answer["first_reason"] == f"record 2: {dead[0].reason}"
        assert [event["id"] for event in events(chunks)] == ["a", "c"]


async def test_a_request_of_broken_lines_alone_is_kept_and_answered_so(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        status, answer, _ = await at.post(b"no\nevent\n", Idempotency_Key="k")
        assert status == 200
        assert (answer["records"], answer["taken"], answer["dead_lettered"]) == (2, 0, 2)
        assert await everything(at.journal) == [b"no", b"event"]
        _, again, _ = await at.post(b"no\nevent\n", Idempotency_Key="k")
        assert again == {**answer, "duplicate": True}


async def test_the_answer_names_the_file_where_the_query_keeps_them(tmp_path: Path) -> None:
    config = HttpSourceConfig.model_validate({"type": "http", "listen": "127.0.0.1:0"})
    context = SourceContext("q", "owner", tmp_path, SystemClock(), lambda _: (tmp_path, lambda: True))
    source = make_source(config, context)
    assert isinstance(source, JournaledSource)
    await source.open(SCHEMA)
    try:
        url = f"http://127.0.0.1:{cast('HttpReceiver', source.receiver).port}/events"
        async with aiohttp.ClientSession() as client, client.post(url, data=b"broken") as answer:
            assert (await answer.json())["dead_letters"] == str(tmp_path / "dead-letters.jsonl")
    finally:
        await source.close()


# ---------------------------------------------------------------------------------------------------------------- keys


async def test_the_same_key_again_is_answered_and_not_taken(tmp_path: Path) -> None:
    clock = SetClock()
    for restarted in (False, True):
        async with site(tmp_path, clock=clock, remember_keys="100s") as at:
            status, answer, _ = await at.post(TWO, Idempotency_Key="k")
            assert (status, answer) == (200, {"records": 2, "duplicate": restarted})
            status, answer, _ = await at.post(TWO, Idempotency_Key="k")
            assert (status, answer) == (200, {"records": 2, "duplicate": True})
            assert at.journal.next_record == 2
    clock.wall_s += 100.0
    async with site(tmp_path, clock=clock, remember_keys="100s") as at:
        _, answer, _ = await at.post(TWO, Idempotency_Key="k")
        assert answer == {"records": 2, "duplicate": False}


async def test_a_key_is_remembered_after_its_records_are_gone(tmp_path: Path) -> None:
    async with site(tmp_path, limit_bytes=4000) as at:
        for n in range(10):
            assert (await at.post(b'{"n": %d}' % n * 50, Idempotency_Key=f"k{n}"))[0] == 200
            await at.source.acknowledge(Position(at.journal.next_record))
        assert at.journal.first_record >= 5
    async with site(tmp_path, limit_bytes=4000) as at:
        for n in range(10):
            assert (await at.post(b'{"n": %d}' % n * 50, Idempotency_Key=f"k{n}"))[1]["duplicate"]


async def test_the_same_key_with_another_body_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        assert (await at.post(TWO, Idempotency_Key="k"))[0] == 200
        status, answer, _ = await at.post(TWO + b" ", Idempotency_Key="k")
        assert status == 422
        assert "a different body" in answer["error"]
        assert at.journal.next_record == 2


async def test_a_body_that_is_packed_otherwise_is_the_same_body(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        assert (await at.post(TWO, Idempotency_Key="k"))[0] == 200
        packed = gzip.compress(TWO)
        assert (await at.post(packed, Idempotency_Key="k", Content_Encoding="gzip"))[1]["duplicate"]


Answered = asyncio.Task[tuple[int, dict[str, Any], dict[str, str]]]


async def held(at: Site, count: int, body: bytes = TWO) -> list[Answered]:
    """Send the same keyed request several times while the disk is slow; return once the receiver has all of them."""
    tasks = [asyncio.create_task(at.post(body, Idempotency_Key="k")) for _ in range(count)]
    await until(lambda: at.receiver.keyed_count and at.receiver.request_count >= count)
    return tasks


@asynccontextmanager
async def slow_disk(error: OSError | None = None) -> AsyncIterator[None]:
    """A disk whose ``fsync`` does not return before the end of the block, and then raises ``error`` if there is one."""
    asked, goes, real = threading.Event(), threading.Event(), os.fsync

    def fsync(handle: int) -> None:
        asked.set()
        assert goes.wait(DEADLINE_S)
        if error is not None:
            raise error
        real(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        try:
            yield
            await until(asked.is_set)
        finally:
            goes.set()


async def test_the_same_key_at_once_shares_one_outcome(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        async with slow_disk():
            tasks = await held(at, 5)
            status, answer, _ = await at.post(TWO + b" ", Idempotency_Key="k")
            assert status == 422, answer
        answers = [await task for task in tasks]
        assert [status for status, _, _ in answers] == [200] * 5
        assert sorted(answer["duplicate"] for _, answer, _ in answers) == [False, True, True, True, True]
        assert at.journal.next_record == 2


async def test_a_failure_is_shared_too_and_nothing_is_remembered(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        async with slow_disk(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
            tasks = await held(at, 3)
        answers = [await task for task in tasks]
        assert [status for status, _, _ in answers] == [503] * 3
        assert at.journal.next_record == 0
        assert (await at.post(TWO, Idempotency_Key="k"))[1] == {"records": 2, "duplicate": False}


async def test_a_sender_that_went_away_does_not_take_its_request_with_it(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        async with slow_disk():
            (task,) = await held(at, 1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        status, answer, _ = await at.post(TWO, Idempotency_Key="k")
        assert (status, answer) == (200, {"records": 2, "duplicate": True})
        assert at.journal.next_record == 2


@pytest.mark.parametrize("key", ["x" * 256, "t\tab", "\u00e9"])
async def test_a_key_that_is_none_is_refused(tmp_path: Path, key: str) -> None:
    async with site(tmp_path) as at:
        status, answer, _ = await at.post(TWO, Idempotency_Key=key)
        assert status == 400
        assert "255 printable" in answer["error"]


# ------------------------------------------------------------------------------------------------------------ pressure


async def test_a_full_journal_holds_senders_back_until_some_is_committed(tmp_path: Path) -> None:
    async with site(tmp_path, limit_bytes=4000) as at:
        body = b'{"id": "x", "n": 1}\n' * 100
        taken = 0
        while (answer := await at.post(body, Idempotency_Key=f"k{taken}"))[0] == 200:
            taken += 1
        assert 0 < taken < 10
        status, said, headers = answer
        assert (status, int(headers["Retry-After"])) == (429, 1)
        assert "does not keep up" in said["error"]
        # What it has it still knows.
        assert (await at.post(body, Idempotency_Key="k0"))[1] == {"records": 100, "duplicate": True}
        await at.source.acknowledge(Position(at.journal.next_record))
        assert (await at.post(body))[0] == 200
        assert at.journal.next_record == 100 * (taken + 1)


async def test_a_disk_that_fails_answers_nobody_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with site(tmp_path) as at:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            status, answer, headers = await at.post(TWO)
            assert (status, int(headers["Retry-After"])) == (503, 5)
            assert "Input/output error" in answer["error"]
        assert at.journal.next_record == 0
        assert (await at.post(TWO))[0] == 200
        assert len(await everything(at.journal)) == 2


# -------------------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_large_body_is_refused_and_the_largest_is_taken(tmp_path: Path, chunked: bool) -> None:
    limit = 100_000

    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(body), 10_000):
            yield body[at : at + 10_000]

    async with site(tmp_path, max_body=f"{limit}B") as at:
        for extra, wanted in ((0, 200), (1, 413)):
            body = b"x" * (limit + extra)
            async with at.client.post(at.url, data=pieces(body) if chunked else body) as answer:
                assert answer.status == wanted
        assert at.journal.next_record == 1


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
async def test_packed_bodies_are_unpacked_within_the_bound(
    tmp_path: Path, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    async with site(tmp_path, max_body="1MB") as at:
        assert (await at.post(pack(TWO), Content_Encoding=encoding))[1] == {"records": 2, "duplicate": False}
        assert (await at.post(pack(b"x" * 1_000_000), Content_Encoding=encoding))[0] == 200
        assert (await at.post(pack(b"x" * 1_000_001), Content_Encoding=encoding))[0] == 413
        bomb = pack(bytes(50_000_000))
        tracemalloc.start()
        try:
            assert (await at.post(bomb, Content_Encoding=encoding))[0] == 413
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 15_000_000
        for damaged in (pack(TWO)[:-6], b"no " + pack(TWO)):
            status, answer, _ = await at.post(damaged, Content_Encoding=encoding)
            assert status == 400, damaged
            assert encoding in answer["error"]
        assert at.journal.next_record == 3


async def test_several_streams_in_one_body_are_one_body(tmp_path: Path) -> None:
    first, second = b'{"n": 1}\n', b'{"n": 2}\n'
    async with site(tmp_path) as at:
        for encoding, pack in (("gzip", gzip.compress), ("zstd", zstandard.compress)):
            assert (await at.post(pack(first) + pack(second), Content_Encoding=encoding))[1]["records"] == 2


async def test_an_encoding_that_is_not_known_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        status, answer, headers = await at.post(TWO, Content_Encoding="br")
        assert status == 415
        assert headers["Accept-Encoding"] == "identity, gzip, zstd"
        assert "br is not supported" in answer["error"]


async def test_all_bodies_together_are_bounded(tmp_path: Path) -> None:
    async with site(tmp_path, max_body="1MB", limit_bytes=1 << 26) as at:
        go_on = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"x" * 900_000
            await go_on.wait()
            yield b"x"

        async def send() -> int:
            # With a declared length, so that it is known from the start which ones fit.
            async with at.client.post(at.url, data=slow(), headers={"Content-Length": "900001"}) as answer:
                assert (answer.status == 429) == ("Retry-After" in answer.headers)
                return answer.status

        tasks = [asyncio.create_task(send()) for _ in range(6)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert {task.result() for task in done} == {429}
        go_on.set()
        statuses = sorted([await task for task in tasks])
        assert statuses == [200] * 4 + [429] * 2
        assert at.receiver.held_bytes == 0
        assert (await at.post(TWO))[0] == 200


async def test_a_body_that_does_not_arrive_is_given_up(tmp_path: Path) -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.Event().wait()

    async with site(tmp_path, body_s=0.05) as at, at.client.post(at.url, data=never()) as answer:
        assert answer.status == 408


async def test_a_line_longer_than_an_event_may_be_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, max_body="64MB") as at:
        status, answer, _ = await at.post(b"x" * (2**24 + 1))
        assert status == 413
        assert "one event may have" in answer["error"]


# ---------------------------------------------------------------------------------------------------------------- trust


@pytest.mark.parametrize("given", ["", "Bearer wrong", "Bearer secret2", "Basic secret", "Bearer s\u00e9cret"])
async def test_a_wrong_token_is_refused(tmp_path: Path, given: str) -> None:
    async with site(tmp_path, token="secret") as at:
        status, answer, headers = await at.post(TWO, Authorization=given)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "secret" not in answer["error"]
        assert (await at.post(TWO, Authorization="Bearer secret"))[0] == 200
        assert at.journal.next_record == 2


async def test_a_server_with_a_certificate_is_spoken_to_over_tls(tmp_path: Path) -> None:
    certificate, key = server_certificate(tmp_path)
    context = ssl.create_default_context(cafile=str(certificate))
    async with site(tmp_path, tls={"certificate": str(certificate), "key": str(key)}) as at:
        url = f"https://localhost:{at.receiver.port}/events"
        async with at.client.post(url, data=TWO, ssl=context) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await at.client.post(at.url, data=TWO)
        assert at.journal.next_record == 2


async def test_a_certificate_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no")
    _, _, source = parts_of(tmp_path, tls={"certificate": str(tmp_path / "no.pem"), "key": str(tmp_path / "no.pem")})
    with pytest.raises(SourceError, match=r"no\.pem are not a certificate"):
        await source.open(SCHEMA)


# ------------------------------------------------------------------------------------------------------- start and end


async def test_an_address_that_is_taken_is_told(tmp_path: Path) -> None:
    async with site(tmp_path / "a") as at:
        _, _, source = parts_of(tmp_path / "b", listen=f"127.0.0.1:{at.receiver.port}")
        with pytest.raises(SourceError, match=r"cannot listen on 127\.0\.0\.1.* choose another port"):
            await source.open(SCHEMA)


async def test_a_server_that_stopped_is_told_after_all_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, servers = asyncio.get_running_loop(), []
    create_server = loop.create_server

    async def noting(*arguments: Any, **named: Any) -> asyncio.Server:
        servers.append(await create_server(*arguments, **named))
        return servers[-1]

    monkeypatch.setattr(loop, "create_server", noting)
    async with site(tmp_path) as at:
        assert (await at.post(TWO))[0] == 200
        servers[0].close()
        assert len(events(await read(at.source, 2))) == 2
        with pytest.raises(SourceError, match="no longer listens"):
            await at.source.read(1, HUGE)


async def test_closing_answers_what_was_taken(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as client:
        journal, receiver, source = parts_of(tmp_path)
        await source.open(SCHEMA)
        at = Site(journal, receiver, source, client)
        async with slow_disk():
            (task,) = await held(at, 1)
            closing = asyncio.create_task(source.close())
            await until(lambda: not receiver.listening)
        await closing
        assert (await task)[0] == 200
        assert not receiver.listening
