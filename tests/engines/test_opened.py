"""Frames in, frames out: owners, credit, and what a gateway may not do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from engines.opened import Opened, Owner, Ticket
from engines.query.known import KnownQuery, RefusedError
from engines.streaming.activity import Activity
from engines.streaming.answers import RunOutcome
from engines.streaming.checkpoints import ResumePoint
from engines.streaming.feed import FeedClosed, Item
from engines.streaming.tables import unpack
from infra.clock import SystemClock
from infra.link.credit import CREDIT_BYTES
from infra.messages import (
    AnyMessage,
    Completed,
    Credit,
    Dictionary,
    OpenQuery,
    Poison,
    QueryFailed,
    QueryPlan,
    RunMessage,
)
from infra.payload.codecs.policy import CodecPolicy
from infra.payload.decoder import Decoder
from infra.payload.encoder import Encoder

SCHEMA = pa.schema([("n", pa.int64())])
SPEC = OpenQuery(query="q", epoch=1, schema_ddl="n BIGINT", sql="SELECT n FROM events")
PLAN = QueryPlan(switch_class="stateless", switchable=True, narrow=True)
OWNER = Owner("s1", 1)
DEADLINE_S = 120.0


class Engine:
    """Keeps what it receives."""

    progress = ResumePoint()
    can_change_owner = True
    activity = Activity(SystemClock())
    death = ""
    by_reference = True

    def __init__(self) -> None:
        unused: Any = None
        self.query = KnownQuery(SPEC, unused, unused, SCHEMA, SCHEMA, PLAN, unused, "hash")
        self.got: list[Item] = []
        self.changed = threading.Event()
        self.refusal: Exception | None = None
        self.refused = threading.Event()
        self.dropped = 0
        self.closed = False

    def put(self, parts: Sequence[pa.Buffer], tag: object, first_seq: int, end_seq: int) -> None:
        if self.refusal is not None:
            self.refused.set()
            raise self.refusal
        self.got.append(Item(first_seq, end_seq, parts, tag))
        self.changed.set()

    def put_ranges(self, parts: Sequence[pa.Buffer], tag: object) -> None:
        self.got.append(Item(0, len(parts), parts, tag))
        self.changed.set()

    def drop_waiting(self) -> None:
        self.dropped += 1

    def committed(self, last_seq: int) -> None:
        self.last_seq = last_seq

    def close(self) -> None:
        self.closed = True


class Link:
    """Accepts what is sent, until it is notified that a session is gone."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[tuple[str, AnyMessage, bytes]] = asyncio.Queue()
        self.gone: set[str] = set()
        self.max_bytes = 1 << 20

    async def send(self, session: str, message: AnyMessage, payload: bytes) -> bool:
        if len(payload) > self.max_bytes:
            raise ValueError("too large a frame")
        if session not in self.gone:
            self.sent.put_nowait((session, message, payload))
        return session not in self.gone

    async def next(self) -> tuple[str, AnyMessage, bytes]:
        async with asyncio.timeout(DEADLINE_S):
            return await self.sent.get()


class Site:
    def __init__(self) -> None:
        self.link = Link()
        self.engine = Engine()
        self.opened = Opened(asyncio.get_running_loop(), self.link.send)
        self.opened.begin(self.engine)
        self.opened.attach(OWNER)
        self.encoder = Encoder(SCHEMA, codecs=CodecPolicy("zstd"))

    def send(self, first_seq: int, *numbers: int) -> int:
        payload = self.encoder.encode(batch(*numbers)).payload
        last_seq = first_seq + len(numbers) - 1
        run = RunMessage(query="q", epoch=1, first_seq=first_seq, last_seq=last_seq, attempt=2, rows=len(numbers))
        self.opened.take_run(run, payload)
        return len(payload)

    async def item(self) -> Item:
        assert await asyncio.to_thread(self.engine.changed.wait, DEADLINE_S)
        self.engine.changed.clear()
        return self.engine.got[-1]

    async def answer(self, item: Item, *numbers: int, poison: tuple[Poison, ...] = ()) -> None:
        await asyncio.to_thread(self.opened.answer, [RunOutcome((item,), batch(*numbers), poison, 7, 0.5)])


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    yield site
    await asyncio.to_thread(site.opened.close)


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)}, SCHEMA)


async def test_a_run_is_decoded_answered_and_its_credit_given_back(site: Site) -> None:
    sent_bytes = site.send(10, 1, 2, 3)
    item = await site.item()
    assert unpack(item.parts, SCHEMA) == batch(1, 2, 3)
    await site.answer(item, 4, 5, poison=(Poison(row=1, reason="bad"),))
    session, completed, payload = await site.link.next()
    assert (session, completed) == (
        "s1",
        Completed(
            query="q",
            epoch=1,
            first_seq=10,
            last_seq=12,
            attempt=2,
            rows=2,
            batch_id=7,
            batch_s=0.5,
            poison=(Poison(row=1, reason="bad"),),
        ),
    )
    assert Decoder(SCHEMA).decode(payload) == batch(4, 5)
    assert await site.link.next() == ("s1", Credit(query="q", epoch=1, bytes=sent_bytes), b"")


async def test_one_answer_may_cover_several_runs(site: Site) -> None:
    sent_bytes = site.send(0, 1, 2)
    first = await site.item()
    sent_bytes += site.send(2, 3)
    second = await site.item()
    await asyncio.to_thread(site.opened.answer, [RunOutcome((first, second), batch(6), (), 0, 0.1)])
    _, completed, _ = await site.link.next()
    assert isinstance(completed, Completed)
    assert (completed.first_seq, completed.last_seq) == (0, 2)
    assert (await site.link.next())[1] == Credit(query="q", epoch=1, bytes=sent_bytes)


async def test_results_for_an_earlier_owner_are_never_sent(site: Site) -> None:
    site.send(0, 1)
    item = await site.item()
    site.opened.detach()
    assert site.engine.dropped == 1
    site.opened.attach(Owner("s2", 1))
    await site.answer(item, 1)
    site.send(0, 2)
    await site.answer(await site.item(), 2)
    session, _, payload = await site.link.next()
    assert (session, Decoder(SCHEMA).decode(payload)) == ("s2", batch(2))


async def test_only_the_present_owner_is_believed(site: Site) -> None:
    assert site.opened.is_owned_by("s1", 1)
    assert not site.opened.is_owned_by("s1", 2)
    assert not site.opened.is_owned_by("s2", 1)
    site.opened.detach()
    assert not site.opened.is_owned_by("s1", 1)


async def test_a_gateway_beyond_its_credit_loses_the_query(site: Site) -> None:
    run = RunMessage(query="q", epoch=1, first_seq=0, last_seq=0, attempt=0, rows=1)
    payload = site.encoder.encode(batch(1)).payload
    site.opened.take_run(run, payload)
    site.opened.take_run(run, bytes(CREDIT_BYTES))
    _, failed, _ = await site.link.next()
    assert isinstance(failed, QueryFailed)
    assert "exceeded its credit" in failed.reason
    assert not site.opened.is_owned_by("s1", 1)


async def test_what_cannot_be_decoded_names_its_run(site: Site) -> None:
    site.opened.take_run(RunMessage(query="q", epoch=1, first_seq=3, last_seq=4, attempt=0, rows=1), b"nonsense")
    _, failed, _ = await site.link.next()
    assert isinstance(failed, QueryFailed)
    assert "run 3-4 cannot be decoded" in failed.reason


async def test_a_bad_dictionary_fails_the_query(site: Site) -> None:
    site.opened.take_dictionary(Dictionary(query="q", field="absent", dictionary_id=1), b"")
    _, failed, _ = await site.link.next()
    assert isinstance(failed, QueryFailed)
    assert "dictionary 1" in failed.reason


async def test_a_run_out_of_turn_fails_a_stateful_query(site: Site) -> None:
    site.engine.refusal = ValueError("run 5-6 arrived, but seq 0 is next")
    site.send(5, 1, 2)
    _, failed, _ = await site.link.next()
    assert isinstance(failed, QueryFailed)
    assert "seq 0 is next" in failed.reason


async def test_a_stopped_engine_drops_runs_in_silence(site: Site) -> None:
    site.engine.refusal = FeedClosed("stopped")
    site.send(0, 1)
    assert await asyncio.to_thread(site.engine.refused.wait, DEADLINE_S)
    site.opened.detach()
    site.opened.attach(Owner("s2", 1))
    site.engine.refusal = None
    site.send(0, 2)
    await site.answer(await site.item(), 2)
    assert (await site.link.next())[0] == "s2"


async def test_results_too_large_for_a_frame_fail_the_query(site: Site) -> None:
    site.link.max_bytes = 1
    site.send(0, 1)
    item = await site.item()
    await site.answer(item, *range(100))
    _, failed, _ = await site.link.next()
    assert isinstance(failed, QueryFailed)
    assert "too large a frame" in failed.reason


async def test_it_serves_another_session_only_with_the_very_same_query(site: Site) -> None:
    query = site.engine.query
    unused: Any = None

    def other(spec: OpenQuery, code_hash: str) -> KnownQuery:
        return KnownQuery(spec, unused, unused, SCHEMA, SCHEMA, PLAN, unused, code_hash)

    assert site.opened.can_serve(other(SPEC, "hash"))
    assert site.opened.can_serve(other(OpenQuery(query="q", epoch=9, schema_ddl="n BIGINT", sql=SPEC.sql), "hash"))
    assert not site.opened.can_serve(other(SPEC, "another hash"))
    assert not site.opened.can_serve(other(OpenQuery(query="q", epoch=1, schema_ddl="n INT", sql=SPEC.sql), "hash"))
    site.engine.can_change_owner = False
    assert not site.opened.can_serve(query)


async def test_a_query_that_died_while_it_was_opened_is_refused(site: Site) -> None:
    site.engine.death = "no more"
    with pytest.raises(RefusedError, match="query q: no more"):
        site.opened.attach(Owner("s2", 1))


async def test_a_ticket_keeps_its_owner(site: Site) -> None:
    site.send(0, 1)
    ticket = (await site.item()).tag
    assert isinstance(ticket, Ticket)
    assert ticket.owner is OWNER
