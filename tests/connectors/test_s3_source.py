"""Objects in S3 as a source: the contract, faults of the store, and objects that do not stay as they were."""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.config.connectors.s3 import S3SourceConfig
from gateway.sources.base import Ahead, ReferableSource, Source
from gateway.sources.choose import SourceContext, make_source
from gateway.sources.files.notes import NOTES_NAME, NotesFile
from infra.clock import SystemClock
from infra.objectstore.base import ListedObject
from infra.objectstore.s3 import S3Store
from infra.retries import Outage
from infra.rows.base import SourceError, SourceUnavailableError
from tests.connectors.s3_server import Fault, Reply, Request, S3Server, faulty
from tests.connectors.source_contract import HUGE, SCHEMA, SourceContract, SourceSubject, events, read, rows

SEED = 107


def lines(first: int, last: int) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows(first, last))


class Objects:
    """Objects below a prefix, and the state of the query that reads them."""

    finite = False
    ordered = True

    def __init__(self, server: S3Server, bucket: str, folder: Path) -> None:
        self.client = server.client()
        self.bucket = bucket
        self.folder = folder
        self.endpoint = server.endpoint
        self._count = 0

    def bring(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"in/mail/{name}", Body=content)

    async def put(self, rows: list[dict[str, Any]]) -> None:
        self._bring(b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    async def put_undecodable(self, raw: bytes) -> None:
        self._bring(raw + b"\n")

    def _bring(self, content: bytes) -> None:
        self.bring(f"{self._count:04}.jsonl", content)
        self._count += 1

    def config(self, **said: Any) -> S3SourceConfig:
        place = {"bucket": self.bucket, "prefix": "in/mail", "endpoint": self.endpoint, "region": "us-east-1"}
        return S3SourceConfig.model_validate({"type": "s3", "follow": True, **place, **said})

    def make(self, **said: Any) -> Source:
        context = SourceContext("q", "me", self.folder, SystemClock(), lambda _: pytest.fail("it has none"))
        return make_source(self.config(**said), context)

    def copies(self) -> list[str]:
        scratch = self.folder / "object"
        return [path.name for path in scratch.iterdir()] if scratch.exists() else []


@pytest.fixture
def subject(s3_server: S3Server, bucket: str, tmp_path: Path) -> Objects:
    return Objects(s3_server, bucket, tmp_path)


class TestS3Source(SourceContract):
    @pytest.fixture
    def subject(self, s3_server: S3Server, bucket: str, tmp_path: Path) -> SourceSubject:
        return Objects(s3_server, bucket, tmp_path)


async def test_each_format_and_any_name_is_read_in_order_and_nothing_is_left_here(subject: Objects) -> None:
    table = pa.Table.from_pylist(rows(2, 3), SCHEMA)
    parquet = io.BytesIO()
    pq.write_table(table, parquet)
    subject.bring("2026/11/b c=+ä.jsonl.gz", gzip.compress(lines(4, 5)))
    subject.bring("2026/10/a.parquet", parquet.getvalue())
    subject.bring("2026/", b"")
    subject.bring("2026/.hidden.jsonl", lines(90, 90))
    subject.bring("0.csv", b"id,n\nid-0,0\nid-x1,1\n")
    subject.bring("empty.jsonl", b"")
    subject.bring("notes.txt", b"no")
    subject.client.put_object(Bucket=subject.bucket, Key="in/mailbox.jsonl", Body=lines(91, 91))
    schema = pa.schema([*SCHEMA, ("_file", pa.string())])
    source = subject.make(follow=False)
    await source.open(schema)
    found = events(await read(source, 6))
    assert [row["n"] for row in found] == list(range(6))
    assert [row["_file"] for row in found[::2]] == ["0.csv", "2026/10/a.parquet", "2026/11/b c=+ä.jsonl.gz"]
    assert await source.finished()
    await source.close()
    assert subject.copies() == []


async def test_one_object_at_a_time_is_here_while_it_is_read(subject: Objects) -> None:
    subject.bring("a.jsonl", lines(0, 9))
    subject.bring("b.jsonl", lines(10, 19))
    source = subject.make()
    await source.open(SCHEMA)
    await read(source, 5)
    assert subject.copies() == ["a.jsonl"]
    await read(source, 10, max_records=5)
    assert subject.copies() == ["b.jsonl"]
    await source.close()
    assert subject.copies() == []


def page(name: str, more: str) -> Reply:
    """One page of a listing; ``more`` asks for the next one."""
    entry = f"<Contents><Key>in/mail/{name}</Key><Size>5</Size><ETag>e-{name}</ETag></Contents>"
    token = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    truncated = f"<IsTruncated>{str(bool(more)).lower()}</IsTruncated>"
    body = f"<ListBucketResult>{truncated}{token}{entry}</ListBucketResult>"
    return Reply(200, body, (("Content-Type", "application/xml"),))


def test_a_listing_is_read_page_after_page(subject: Objects, s3_server: S3Server) -> None:
    def fault(request: Request) -> Reply:
        return page("b.jsonl", "") if "continuation-token=next" in request.path else page("a.jsonl", "next")

    with faulty(s3_server, fault) as proxy:
        store = S3Store(subject.bucket, prefix="in/mail", endpoint=proxy.endpoint)
        found = list(store.listed())
    assert found == [ListedObject("a.jsonl", 5, "e-a.jsonl"), ListedObject("b.jsonl", 5, "e-b.jsonl")]


@pytest.mark.parametrize("what", ["removed", "replaced"])
async def test_an_object_that_does_not_stay_is_an_error_that_names_it(subject: Objects, what: str) -> None:
    subject.bring("a.jsonl", lines(0, 9))
    source = subject.make()
    await source.open(SCHEMA)
    first = await read(source, 5, max_records=5)
    await source.close()
    if what == "removed":
        subject.client.delete_object(Bucket=subject.bucket, Key="in/mail/a.jsonl")
    else:
        subject.bring("a.jsonl", lines(50, 59))
    again = subject.make()
    await again.open(SCHEMA)
    await again.seek(first[-1].end)
    wanted = {"removed": r"a\.jsonl no longer exists: restore it", "replaced": r"a\.jsonl was replaced"}
    with pytest.raises(SourceError, match=wanted[what]):
        await again.read(5, HUGE)
    subject.bring("a.jsonl", lines(0, 9))  # the same bytes have the same ETag
    assert events(await read(again, 5)) == rows(5, 9)
    await again.close()


async def test_done_objects_may_go_and_leave_the_list(subject: Objects) -> None:
    subject.bring("a.jsonl", lines(0, 4))
    source = subject.make()
    await source.open(SCHEMA)
    chunks = await read(source, 5)
    await source.acknowledge(chunks[-1].end)
    subject.client.delete_object(Bucket=subject.bucket, Key="in/mail/a.jsonl")
    subject.bring("b.jsonl", lines(5, 9))
    assert events(await read(source, 5)) == rows(5, 9)
    await source.close()
    notes = NotesFile(subject.folder / NOTES_NAME).read()
    assert notes is not None
    assert (notes.first, [file.name for file in notes.taken], notes.done) == (1, ["b.jsonl"], ())


async def test_too_large_an_object_is_refused(subject: Objects) -> None:
    subject.bring("a.jsonl", b" " * (1 << 20) + b"\n")
    source = subject.make(object_limit="1MiB")
    await source.open(SCHEMA)
    with pytest.raises(SourceError, match=r"a\.jsonl has 1048577 bytes, and object_limit is 1048576: raise it"):
        await source.read(1, HUGE)
    await source.close()


async def test_no_bucket_is_an_error_that_says_what_to_do(subject: Objects) -> None:
    source = subject.make(bucket="nobody-made-this")
    await source.open(SCHEMA)
    with pytest.raises(SourceError, match="the bucket does not exist: create it"):
        await source.read(1, HUGE)
    await source.close()


async def all_read(source: Source, count: int, max_records: int = 7) -> list[dict[str, Any]]:
    """Read through outages, as an ingress does."""
    outage = Outage(SystemClock(), (SourceUnavailableError, OSError))
    found: list[dict[str, Any]] = []
    while len(found) < count:
        chunk = await outage.outlast("the source", lambda: source.read(max_records, HUGE))
        found += [] if chunk is None else chunk.batch.to_pylist()
    return found


async def test_among_faults_of_the_store_every_event_comes_once_and_in_order(
    subject: Objects, s3_server: S3Server
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for number in range(8):
        subject.bring(f"{number:02}.jsonl", lines(number * 20, number * 20 + 19))
    faults: list[Fault] = ["500", "503", "slow down", "late", "refused", "answer lost", "cut short"]

    def fault(_: Request) -> Fault:
        return chance.choice(faults) if chance.randrange(2) else ""

    with faulty(s3_server, fault, late_s=0.05) as proxy:
        source = subject.make(endpoint=proxy.endpoint, follow=False)
        await source.open(SCHEMA)
        assert await all_read(source, 160) == rows(0, 159)
        proxy.fault = lambda _: ""
        assert await source.finished()
        await source.close()
        assert proxy.faults > 3


async def test_a_copy_that_was_cut_off_goes_on_where_it_ended(subject: Objects, s3_server: S3Server) -> None:
    body = lines(0, 60_000)
    assert len(body) > 1 << 20
    subject.bring("a.jsonl", body)
    ranges: list[str] = []

    def fault(request: Request) -> Fault:
        if "a.jsonl" not in request.path:
            return ""
        ranges.append(request.range)
        return "cut short" if len(ranges) < 3 else ""

    with faulty(s3_server, fault) as proxy:
        source = subject.make(endpoint=proxy.endpoint, follow=False)
        await source.open(SCHEMA)
        assert await all_read(source, 60_001, max_records=10_000) == rows(0, 60_000)
        await source.close()
    assert ranges[0] == ""
    starts = [int(said.removeprefix("bytes=").removesuffix("-")) for said in ranges[1:]]
    assert 0 < starts[0] < starts[1] < len(body)


async def test_what_was_passed_over_is_read_in_the_bucket_later_and_only_the_object_that_was_listed(
    subject: Objects,
) -> None:
    parquet = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows(6, 11), SCHEMA), parquet, row_group_size=2)
    subject.bring("0.jsonl", lines(0, 2))
    subject.bring("1.csv", b'id,n\nid-3,3\n"id-4",4\nid-5,5\n')
    subject.bring("2.parquet", parquet.getvalue())
    source = subject.make(follow=False)
    assert isinstance(source, ReferableSource)
    await source.open(SCHEMA)
    places = []
    while isinstance(ahead := await source.ahead(2, 1 << 20), Ahead):
        places.append((ahead.start, ahead.end))
    found = [(await source.read_range(*each)).batch.column("n").to_pylist() for each in reversed(places)]
    assert found == [[10, 11], [8, 9], [6, 7], [5], [3, 4], [2], [0, 1]]
    subject.bring("0.jsonl", lines(0, 3))
    with pytest.raises(SourceError, match="was replaced after it was listed"):
        await source.read_range(*places[0])
    await source.close()
