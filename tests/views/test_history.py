"""The moments of the last day: bounded, kept over a restart, and streamed so that a client can continue."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.views.http import stream as stream_module
from gateway.views.http.stream import Streams
from gateway.views.live.history import DAY_S, History
from gateway.views.live.moments import Mark, Moment, QueryMoment, VmMoment, minute_of

WALL_S = 1.7e9


def moment(at_s: float, *, latency: float = 1.0, marks: tuple[Mark, ...] = (), **fields: Any) -> Moment:
    query = QueryMoment(state="running", latency=latency, completed={"home": 10.0 * latency}, **fields)
    return Moment(id=int(at_s * 1000), for_s=1.0, queries={"q": query, "r": query}, marks=marks)


def filled(folder: Path, seconds: int, *, newest_most: int = 10) -> History:
    history = History(folder, WALL_S, newest_most)
    for second in range(seconds):
        history.add(moment(WALL_S + second, latency=float(second)))
    return history


def ids(history: History, after: int) -> list[int] | None:
    found = history.after(after)
    return None if found is None else [moment_id for moment_id, _ in found]


# -------------------------------------------------------------------------------------------------------------- minutes


def test_a_minute_keeps_the_highest_latency_the_mean_rate_and_every_mark() -> None:
    launched = Mark(WALL_S, "launched", "vm-1", "L >= L_s")
    vms = {"vm-1": VmMoment("idle", WALL_S, WALL_S + 60)}
    first = moment(WALL_S, latency=4.0, processing=None, share=0.5, dead_letters=1, marks=(launched,))
    second = moment(WALL_S + 3, latency=1.0, processing=2.0, share=0.0, dead_letters=3)
    second = Moment(id=second.id, for_s=3.0, queries=second.queries, vms=vms, decisions=({"query": "q"},))
    whole = minute_of([first, second])
    query = whole.queries["q"]
    assert (whole.id, whole.for_s, whole.marks, whole.vms) == (second.id, 4.0, (launched,), vms)
    assert (query.latency, query.processing, query.delivery) == (4.0, 2.0, None)
    assert query.completed == {"home": pytest.approx((1 * 40 + 3 * 10) / 4)}
    assert query.share == pytest.approx(0.125)
    assert query.dead_letters == 3
    assert whole.decisions == ()


async def test_each_moment_is_recalled_once_and_only_of_the_query_that_is_asked_for(tmp_path: Path) -> None:
    history = filled(tmp_path, 150, newest_most=40)
    found = await history.recalled("q")
    minutes, newest = ([json.loads(line) for line in lines] for lines in (found.minutes, found.newest))
    assert [each["for_s"] for each in minutes] == [60.0, 60.0]
    assert [each["id"] for each in newest] == [int((WALL_S + second) * 1000) for second in range(120, 150)]
    assert all(each["queries"].keys() == {"q"} for each in minutes + newest)
    assert found.last_id == newest[-1]["id"]
    both = await history.recalled(None)
    assert json.loads(both.newest[0])["queries"].keys() == {"q", "r"}
    await history.close()


@pytest.mark.parametrize(("newest_most", "minutes"), [(150, 0), (90, 1), (89, 2), (31, 2)])
async def test_a_minute_is_shown_as_one_only_if_some_of_it_is_no_longer_kept_one_by_one(
    tmp_path: Path, newest_most: int, minutes: int
) -> None:
    history = filled(tmp_path, 150, newest_most=newest_most)
    found = await history.recalled(None)
    assert len(found.minutes) == minutes
    begins = WALL_S + 60 * minutes
    assert [json.loads(line)["id"] for line in found.newest] == [
        int((begins + second) * 1000) for second in range(150 - 60 * minutes)
    ]
    await history.close()


# -------------------------------------------------------------------------------------------------------------- restart


async def test_a_new_gateway_continues_with_the_history_on_disk(tmp_path: Path) -> None:
    await filled(tmp_path, 90).close()
    with (tmp_path / "00000001.jsonl").open("a") as file:
        file.write('{"id": 17000000')  # killed while it wrote
    again = History(tmp_path, WALL_S + 100)
    found = await again.recalled("q")
    assert [json.loads(line)["for_s"] for line in found.minutes] == [60.0, 30.0]
    assert found.newest == []
    assert again.last_id == int((WALL_S + 89) * 1000)
    assert again.next_id(WALL_S) == again.last_id + 1, "the clock was set back"
    assert ids(again, again.last_id) == []
    assert ids(again, again.last_id - 1) is None
    await again.close()


async def test_what_is_older_than_a_day_is_forgotten(tmp_path: Path) -> None:
    await filled(tmp_path, 120).close()
    assert (await History(tmp_path, WALL_S + DAY_S + 500).recalled(None)).minutes == []
    history = History(tmp_path, WALL_S + 200)
    history.add(moment(WALL_S + DAY_S + 90))
    assert [json.loads(line)["id"] for line in (await history.recalled(None)).minutes] == [int((WALL_S + 119) * 1000)]
    await history.close()


# --------------------------------------------------------------------------------------------------------------- stream


class Client:
    """Reads the stream of a history as a browser does."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def read(self, most: int, last_id: int | None = None, **params: int) -> list[tuple[str, int]]:
        """Return the kind and id of the first events."""
        headers = {} if last_id is None else {"Last-Event-ID": str(last_id)}
        found: list[tuple[str, int]] = []
        async with self._session.get(self._url, params=params, headers=headers) as answer:
            assert answer.status == 200
            assert answer.content_type == "text/event-stream"
            assert await answer.content.readuntil(b"\n\n") == b"retry: 1000\n\n"
            while len(found) < most:
                block = (await answer.content.readuntil(b"\n\n")).decode()
                if block.startswith(":"):
                    continue
                fields = dict(line.split(": ", 1) for line in block.strip().splitlines())
                if fields["event"] == "moment":
                    assert json.loads(fields["data"])["id"] == int(fields["id"])
                found.append((fields["event"], int(fields["id"])))
        return found

    async def status(self, **headers: str) -> int:
        async with self._session.get(self._url, headers=headers) as answer:
            return answer.status


async def test_a_client_that_connects_again_misses_nothing(tmp_path: Path) -> None:
    history = filled(tmp_path, 5)
    streams = Streams(history)
    app = web.Application()
    app.add_routes([web.get("/stream", streams.stream), web.get("/history", streams.recall)])
    start = int(WALL_S * 1000)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = Client(session, str(server.make_url("/stream")))
        assert await client.read(3, after=start + 1000) == [("moment", start + n * 1000) for n in (2, 3, 4)]
        reading = asyncio.create_task(client.read(2, last_id=start + 4000))
        for second in range(5, 7):
            await asyncio.sleep(0)
            history.add(moment(WALL_S + second))
        assert await reading == [("moment", start + 5000), ("moment", start + 6000)]
        for second in range(7, 30):
            history.add(moment(WALL_S + second))
        assert await client.read(1, last_id=start + 6000) == [("reset", start + 29_000)], "older than the newest ten"
        assert await client.status(**{"Last-Event-ID": "x"}) == 422
        async with session.get(server.make_url("/history"), params={"query": "q"}) as answer:
            assert (await answer.json())["last_id"] == start + 29_000
        streams.end()
    await history.close()


async def test_only_so_many_streams_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "STREAMS_MOST", 1)
    history = filled(tmp_path, 2)
    streams = Streams(history)
    app = web.Application()
    app.add_routes([web.get("/stream", streams.stream)])
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        url = server.make_url("/stream")
        client = Client(session, str(url))
        async with session.get(url) as first:
            assert first.status == 200
            assert await client.status() == 503
        history.add(moment(WALL_S + 9))  # what is written to the closed connection ends its stream
        closed = [503]

        async def open_again() -> None:
            async with session.get(url) as answer:
                closed.append(answer.status)

        for second in range(10, 20):
            history.add(moment(WALL_S + second))
            await open_again()
            if closed[-1] == 200:
                break
        assert closed[-1] == 200
        streams.end()
    await history.close()
