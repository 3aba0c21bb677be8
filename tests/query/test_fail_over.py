"""A query that gateways with a state_dir each continue one after another: the sink alone tells the next one where."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.config import ConfigError
from gateway.query.handover import EPOCHS_PER_OWNER, OwningFleet, why_it_stays
from gateway.query.running import RunningQuery
from gateway.sinks import choose
from gateway.sinks.base import FencedError
from gateway.sinks.parts.s3manifest import FOLDER, visible_parts
from infra.messages import RunMessage
from infra.objectstore.folder import FolderStore
from infra.objectstore.versions import Versions
from infra.rows.base import SourceError
from infra.statefiles import StateError
from tests.connectors.ports import free_port
from tests.connectors.s3_server import CREDENTIALS, S3Server
from tests.support.query_site import Engine, Site
from tests.support.waiting import until

SEED = 20261123
EVENTS = 1000
OWNERS = 10
SENDERS = 4
S3: dict[str, Any] = {"type": "s3", "bucket": "results"}


class Town:
    """Two state_dirs, one sink, one fleet; each ``fleet`` is that of the next owner."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.site = Site(folder)
        self.store = FolderStore(folder / "bucket")
        patch.setattr(choose, "make_store", lambda *_, **__: self.store)
        self.agreed: dict[str, str] = {}
        self.epoch = 0

    def next_owner(self) -> OwningFleet:
        self.epoch += 1
        epoch = self.epoch
        return OwningFleet(lambda: epoch, lambda name, value: self.agreed.setdefault(name, value), "f", self.store)

    def rows(self) -> list[tuple[int, str]]:
        parts = [self.store.get(name, bytes_max=1 << 20) for name in visible_parts(self.store)]
        found = [json.loads(line) for part in parts if part is not None for line in part.data.splitlines()]
        return [(row["id"], row["lane"]) for row in found]

    def committed(self) -> list[tuple[int, int]]:
        """The ranges of seq whose results are there, as an independent reader sees them."""
        latest = Versions(self.store, FOLDER).latest()
        found: list[tuple[int, int]] = [] if latest is None else json.loads(latest.data)["committed"]
        return found or [(0, -1)]

    def ids(self) -> list[int]:
        return [number for number, _ in self.rows()]


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    return Town(tmp_path, monkeypatch)


def up_to(last: int, held: int) -> Callable[[RunMessage], bool]:
    """Say whether a run ends by ``last`` and does not hold the event ``held``."""
    return lambda run: run.last_seq <= last and not run.first_seq <= held <= run.last_seq


def reaches(town: Town, seq: int) -> bool:
    """Whether anything from ``seq`` on is committed."""
    return town.committed()[-1][1] >= seq


async def test_any_number_of_owners_deliver_each_event_once(town: Town) -> None:
    """Each owner is overtaken while it works, with holes in what it has committed, and works on for a while."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    town.site.write("in.jsonl", range(EVENTS))
    settings: dict[str, Any] = {"sink": S3, "order": {"by": "arrival", "flush": "10ms"}}
    earlier: list[RunningQuery] = []
    async with AsyncExitStack() as owners:
        for number in range(OWNERS):
            held = town.committed()[-1][1] + chance.randint(1, 20)
            query = await owners.enter_async_context(
                town.site.started(
                    Engine(answers=up_to(held + 60, held)),
                    state=f"state-{number % 2}",
                    fleet=town.next_owner(),
                    runs={"max_events": chance.randint(3, 20)},
                    **settings,
                )
            )
            await until(partial(reaches, town, held + 1))
            assert len(town.committed()) > 1  # what is before the hole, and what is after it
            earlier.append(query)
        last = await owners.enter_async_context(
            town.site.started(Engine(), state="state-new", fleet=town.next_owner(), **settings)
        )
        await until(lambda: last.drained or last.failure() is not None)
        assert last.failure() is None
        assert all(old.failure() is None or isinstance(old.failure(), FencedError) for old in earlier)
    assert Counter(town.ids()) == Counter(range(EVENTS))


async def test_acknowledged_events_survive_the_machine_that_acknowledged_them(town: Town) -> None:
    """Senders POST to each owner; the next one sees nothing of its folder, and the old one can add nothing."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    sent: list[int] = []
    gateway = {"fleet": "f", "object_store": {"folder": str(town.site.folder / "bucket")}}
    settings: dict[str, Any] = {"sink": S3, "order": {"by": "arrival", "flush": "10ms"}, "gateway": gateway}
    urls: list[str] = []
    async with AsyncExitStack() as owners:
        client = await owners.enter_async_context(aiohttp.ClientSession())

        async def post(url: str, key: int, ids: range) -> tuple[int, dict[str, Any]]:
            body = "".join(json.dumps({"id": i, "text": "x"}) + "\n" for i in ids)
            async with client.post(url, data=body, headers={"Idempotency-Key": str(key)}) as answer:
                return answer.status, await answer.json()

        for number in range(SENDERS):
            listen = f"127.0.0.1:{free_port()}"
            last = number == SENDERS - 1
            held = max(0, town.committed()[-1][1]) + chance.randint(1, 20)
            engine = Engine() if last else Engine(answers=up_to(held + 60, held))
            source = {"type": "http", "listen": listen, "journal": {"replicate": True}}
            urls.append(f"http://{listen}/events")
            await owners.enter_async_context(
                town.site.started(
                    engine,
                    state=f"state-{number}",
                    fleet=town.next_owner(),
                    source=source,
                    runs={"max_events": chance.randint(3, 20)},
                    **settings,
                )
            )
            if number:
                assert (await post(urls[-2], -number, range(10**6, 10**6 + 5)))[0] == 503
                assert (await post(urls[-1], len(sent) - 10, range(len(sent) - 10, len(sent))))[1]["duplicate"]
            for _ in range(0 if last else 10):
                ids = range(len(sent), len(sent) + 10)
                assert await post(urls[-1], ids[0], ids) == (200, {"records": 10, "duplicate": False})
                sent.extend(ids)
            if not last:
                await until(partial(reaches, town, held + 1))
        await until(lambda: len(town.ids()) >= len(sent))
    assert Counter(town.ids()) == Counter(sent)


async def test_objects_that_one_owner_listed_have_the_same_numbers_for_the_next(
    town: Town, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each owner has an empty state_dir; names appear in an order that is not that of the numbers."""
    print(f"seed {SEED}")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    chance = random.Random(SEED)
    bucket, client = s3_server.make_bucket(), s3_server.client()
    source = {"type": "s3", "bucket": bucket, "prefix": "in", "endpoint": s3_server.endpoint, "follow": True}
    order = {"by": "arrival", "flush": "10ms"}
    settings: dict[str, Any] = {"sink": S3, "source": source, "order": order}
    written = 0

    def bring(name: str) -> None:
        nonlocal written
        body = "".join(json.dumps({"id": i, "text": "x"}) + "\n" for i in range(written, written + 25))
        client.put_object(Bucket=bucket, Key=f"in/{name}.jsonl", Body=body.encode())
        written += 25

    earlier: list[RunningQuery] = []
    async with AsyncExitStack() as owners:
        for number in range(SENDERS):
            for part in range(3):
                bring(f"{SENDERS - number}-{part}")
            held = max(0, town.committed()[-1][1]) + chance.randint(1, 20)
            query = await owners.enter_async_context(
                town.site.started(
                    Engine(answers=up_to(held + 40, held)),
                    state=f"state-{number}",
                    fleet=town.next_owner(),
                    runs={"max_events": chance.randint(3, 20)},
                    **settings,
                )
            )
            await until(partial(reaches, town, held + 1))
            earlier.append(query)
        bring("0-last")
        last = await owners.enter_async_context(
            town.site.started(Engine(), state="state-new", fleet=town.next_owner(), **settings)
        )
        await until(lambda: len(town.ids()) >= written or last.failure() is not None)
        assert last.failure() is None
        assert all(isinstance(old.failure(), FencedError | SourceError | None) for old in earlier)
    assert Counter(town.ids()) == Counter(range(written))
    listed = Versions(town.store, f"files/f/q/{town.agreed['queries/q']}").latest()
    assert listed is not None
    assert json.loads(listed.data)["epoch"] == town.epoch * EPOCHS_PER_OWNER


async def test_a_source_of_objects_needs_the_fleet_that_keeps_its_list(
    town: Town, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    bucket = s3_server.make_bucket()
    source = {"type": "s3", "bucket": bucket, "endpoint": s3_server.endpoint}
    body = b"".join(b'{"id": %d, "text": "x"}\n' % number for number in range(30))
    s3_server.client().put_object(Bucket=bucket, Key="a.jsonl", Body=body)
    async with town.site.started(Engine(), source=source, fleet=town.next_owner(), sink=S3) as query:
        await until(lambda: query.drained)
    assert town.ids() == list(range(30))
    async with town.site.started(Engine(), source=source, sink=S3) as query:
        await until(lambda: query.failure() is not None)
        assert "start the gateway with its fleet" in str(query.failure())
    gateway = {"fleet": "f", "object_store": {"folder": str(town.site.folder / "bucket")}}
    assert not why_it_stays(town.site.config(source=source, sink=S3, gateway=gateway).queries["q"], stateful=False)


def test_a_journal_is_replicated_only_where_another_gateway_can_use_it(town: Town) -> None:
    source = {"type": "http", "listen": "127.0.0.1:0", "journal": {"replicate": True}}
    gateway = {"fleet": "f", "object_store": {"folder": "store"}}
    with pytest.raises(ConfigError, match=r"journal.replicate.*add gateway.fleet and gateway.object_store"):
        town.site.config(source=source, sink=S3)
    with pytest.raises(ConfigError, match=r"is of no use with a file sink"):
        town.site.config(source=source, gateway=gateway)
    assert not why_it_stays(town.site.config(source=source, sink=S3, gateway=gateway).queries["q"], stateful=False)


def test_a_query_with_selections_is_continued_only_where_its_run_log_is(town: Town) -> None:
    windows = {"opens": {"every_events": 10}, "closes": {"events": 20}}
    source = {"type": "s3", "bucket": "events"}
    config = town.site.config(source=source, sink=S3, selections=windows)
    assert "open selections" in why_it_stays(config.queries["q"], stateful=False)


async def test_a_query_with_state_is_continued_only_where_its_state_is(town: Town) -> None:
    town.site.write("in.jsonl", range(40))
    counting: dict[str, Any] = {"sink": S3, "sql": "SELECT COUNT all"}
    async with town.site.started(Engine(), state="state-0", fleet=town.next_owner(), **counting) as query:
        await until(lambda: query.drained)
    with pytest.raises(
        StateError, match=r"only be continued with the state_dir of another gateway of the fleet \(it keeps state"
    ):
        async with town.site.started(Engine(), state="state-1", fleet=town.next_owner(), **counting):
            pass
    town.site.write("in.jsonl", range(60))
    async with town.site.started(Engine(), state="state-0", fleet=town.next_owner(), **counting) as query:
        await until(lambda: query.drained)
    assert town.ids() == list(range(60))


async def test_a_gateway_that_joins_with_its_state_keeps_it_and_hands_it_over(town: Town) -> None:
    """The state of an earlier version, or of a gateway without a fleet."""
    town.site.write("in.jsonl", range(40))
    async with town.site.started(Engine(), state="state-0", sink=S3) as query:
        await until(lambda: query.drained)
    town.site.write("in.jsonl", range(80))
    with pytest.raises(StateError, match="different state_dir"):
        async with town.site.started(Engine(), state="state-1", sink=S3):
            pass
    async with town.site.started(Engine(), state="state-0", fleet=town.next_owner(), sink=S3) as query:
        await until(lambda: query.drained)
    town.site.write("in.jsonl", range(100))
    async with town.site.started(Engine(), state="state-2", fleet=town.next_owner(), sink=S3) as query:
        await until(lambda: query.drained)
    assert town.ids() == list(range(100))


async def test_state_of_its_own_is_not_mixed_with_that_of_the_fleet(town: Town) -> None:
    town.site.write("in.jsonl", range(40))
    async with town.site.started(Engine(), state="state-0", fleet=town.next_owner(), sink=S3) as query:
        await until(lambda: query.drained)
    async with town.site.started(Engine(), state="state-1") as query:  # to a folder, without the fleet
        await until(lambda: query.drained)
    with pytest.raises(StateError, match="holds state of its own, from before this gateway joined the fleet"):
        async with town.site.started(Engine(), state="state-1", fleet=town.next_owner(), sink=S3):
            pass


async def test_the_next_owner_may_have_another_definition(town: Town) -> None:
    town.site.write("in.jsonl", range(100))
    held = Engine(answers=lambda run: run.first_seq < 50)
    said: dict[str, Any] = {"sink": S3, "order": {"by": "arrival", "flush": "10ms"}}
    async with town.site.started(held, state="state-0", fleet=town.next_owner(), sql="SELECT old", **said):
        await until(lambda: town.committed()[-1][1] == 49)
    async with town.site.started(Engine(), state="state-1", fleet=town.next_owner(), sql="SELECT new", **said) as query:
        await until(lambda: query.drained)
    assert town.rows() == [(i, "SELECT old" if i < 50 else "SELECT new") for i in range(100)]
    # The first gateway comes back with what it read then, and with the new definition.
    town.site.write("in.jsonl", range(120))
    async with town.site.started(Engine(), state="state-0", fleet=town.next_owner(), sql="SELECT new", **said) as query:
        await until(lambda: query.drained)
    assert town.ids() == list(range(120))
