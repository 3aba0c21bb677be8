"""A real host process over a real link."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytest_asyncio
from msgspec.structs import replace

from engines.query.code import query_hash
from infra.messages import (
    HEARTBEAT,
    CommittedMessage,
    Completed,
    KeyPart,
    OpenQuery,
    QueryFailed,
    QueryRefused,
    Shutdown,
    StaticTable,
    TablePart,
    state_folder,
)
from infra.payload.codecs.policy import CodecPolicy
from infra.payload.encoder import Encoder
from infra.payload.tablefiles import PackedTable, pack
from tests.engines.host_site import DEADLINE_S, Gateway, HostProcess, host_process

pytestmark = [pytest.mark.spark, pytest.mark.asyncio(loop_scope="module")]

USER = str(Path(__file__).parent / "user")
UPPER = OpenQuery(
    query="upper",
    epoch=1,
    schema_ddl="id BIGINT, name STRING, unused STRING",
    sql="SELECT id, upper(name) AS name FROM events WHERE name LIKE '%1'",
    max_batch_runs=4,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HostProcess]:
    async with host_process(tmp_path_factory.mktemp("host")) as host:
        async with host.gateway() as gateway:
            await gateway.until_ready()
        yield host


def rows(first: int, count: int) -> list[dict[str, object]]:
    return [{"id": number, "name": f"n{number}", "unused": "x"} for number in range(first, first + count)]


def one_name(first: int, count: int) -> list[dict[str, object]]:
    return [{"id": number, "name": "n"} for number in range(first, first + count)]


async def sent(gateway: Gateway, packed: PackedTable, part_bytes: int) -> None:
    for offset in range(0, len(packed.packed), part_bytes):
        part = TablePart(
            fingerprint=packed.fingerprint,
            offset=offset,
            packed_bytes=len(packed.packed),
            raw_bytes=packed.raw_bytes,
        )
        await gateway.link.send(part, packed.packed[offset : offset + part_bytes])


async def test_a_table_is_sent_in_parts_and_joined_in_its_version(host: HostProcess, tmp_path: Path) -> None:
    names: dict[int, str | None] = {number: f"Ann {number}" for number in range(0, 400, 3)}
    file = tmp_path / "customers.csv"
    earlier = ""
    for sql, suffix in [("SELECT id, customer FROM events LEFT JOIN customers USING (id)", ""), ("", "'s")]:
        file.write_text("id,customer\n" + "".join(f"{number},{name}{suffix}\n" for number, name in names.items()))
        packed = pack(file)
        table = StaticTable(
            name="customers",
            format="csv",
            schema_ddl="id BIGINT, customer STRING",
            header=True,
            fingerprint=packed.fingerprint,
        )
        spec = replace(UPPER, query="named", sql=sql, tables=(table,), epoch=2 if suffix else 1)
        if not sql:
            spec = replace(spec, function="user_functions:with_customers", code_path=USER)
        async with host.gateway() as gateway:
            assert packed.fingerprint not in gateway.link.hello.tables
            assert not earlier or earlier in gateway.link.hello.tables
            await gateway.link.send(spec)
            await sent(gateway, packed, 100)
            query = await gateway.opened(spec)
            plan = query.ready.plan
            assert (plan.switch_class, plan.switchable, plan.narrow, plan.reason) == ("stateless", True, True, "")
            await query.send(0, rows(0, 400))
            ((_, batch),) = await query.completed(1)
            found = {row["id"]: row["customer"] for row in batch.to_pylist()}
            assert found == {number: f"{names[number]}{suffix}" if number in names else None for number in range(400)}
            assert query.ready.removed_tables == ((earlier,) if earlier else ())
        async with host.gateway() as gateway:
            assert packed.fingerprint in gateway.link.hello.tables
            assert earlier not in gateway.link.hello.tables
            await gateway.open(replace(spec, epoch=spec.epoch + 10))
        earlier = packed.fingerprint


async def test_a_damaged_table_refuses_the_query(host: HostProcess, tmp_path: Path) -> None:
    file = tmp_path / "customers.csv"
    file.write_text("1,Ann\n")
    packed = pack(file)
    other = dataclasses.replace(packed, fingerprint="0" * 64)
    table = StaticTable(name="customers", format="csv", schema_ddl="id BIGINT, c STRING", fingerprint="0" * 64)
    async with host.gateway() as gateway:
        await sent(gateway, other, 1 << 20)
        await gateway.link.send(replace(UPPER, query="damaged", tables=(table,)))
        refused, _ = await gateway.expect(QueryRefused)
        assert "table customers: the table 000000000000 arrived damaged" in refused.reason


async def test_a_file_that_is_not_declared_is_joined_at_home(host: HostProcess, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 3], "customer": ["Ann", "Bea"]}), tmp_path / "customers.parquet")
    sql = f"SELECT id, customer FROM events JOIN parquet.`{tmp_path}/customers.parquet` USING (id)"
    async with host.gateway() as gateway:
        query = await gateway.open(replace(UPPER, query="undeclared", sql=sql))
        assert (query.ready.plan.switch_class, query.ready.plan.stateful) == ("whole", False)
        await query.send(5, rows(0, 4))
        ((_, batch),) = await query.completed(1)
        assert batch.to_pylist() == [{"id": 1, "customer": "Ann"}, {"id": 3, "customer": "Bea"}]


async def test_runs_come_back_named_and_their_credit_too(host: HostProcess) -> None:
    async with host.gateway() as gateway:
        query = await gateway.open(UPPER)
        assert query.ready.plan.narrow
        for first in range(0, 100, 20):
            await query.send(first, rows(first, 20))
        found = {message.first_seq: (message, batch) for message, batch in await query.completed(5)}
        assert sorted(found) == [0, 20, 40, 60, 80]
        for first, (message, batch) in found.items():
            assert (message.last_seq, message.epoch, message.poison) == (first + 19, 1, ())
            expected = [{"id": n, "name": f"N{n}"} for n in range(first, first + 20) if n % 10 == 1]
            assert batch.to_pylist() == expected
            assert message.batch_s > 0


async def test_credit_given_back_is_what_was_sent(host: HostProcess) -> None:
    async with host.gateway() as gateway:
        query = await gateway.open(UPPER)
        await query.send(0, rows(0, 20))
        await query.send(20, rows(20, 21))
        await query.completed(2)
        given = [await gateway.credit() for _ in range(2)]
        assert given == query.sent_bytes


async def test_another_session_goes_on_with_the_running_query_and_hears_nothing_of_the_last(host: HostProcess) -> None:
    loop = asyncio.get_running_loop()
    async with host.gateway() as gateway:
        query = await gateway.open(UPPER)
        for first in range(0, 400, 20):
            await query.send(first, rows(first, 20))
    async with host.gateway() as gateway:
        began_s = loop.time()
        again = await gateway.open(replace(UPPER, epoch=2))
        assert loop.time() - began_s < DEADLINE_S / 4
        await again.send(1_000, rows(1_001, 1))
        ((message, batch),) = await again.completed(1)
        assert (message.first_seq, message.epoch) == (1_000, 2)
        assert batch.to_pylist() == [{"id": 1_001, "name": "N1001"}]
        assert not [each for each in gateway.others if isinstance(each, Completed)]


async def test_poison_is_reported_over_the_link(host: HostProcess) -> None:
    async with host.gateway() as gateway:
        query = await gateway.open(
            OpenQuery(query="cast", epoch=1, schema_ddl="t STRING", sql="SELECT CAST(t AS INT) n FROM events")
        )
        await query.send(0, [{"t": "1"}, {"t": "two"}, {"t": "3"}])
        ((message, batch),) = await query.completed(1)
        assert batch.to_pylist() == [{"n": 1}, {"n": 3}]
        assert [poison.row for poison in message.poison] == [1]
        assert "two" in message.poison[0].reason


async def refusal(gateway: Gateway, spec: OpenQuery) -> str:
    await gateway.link.send(spec)
    message, _ = await gateway.expect(QueryRefused)
    return message.reason


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"sql": "SELECT nothing FROM events"}, "nothing"),
        ({"sql": "SELEKT 1"}, "SELEKT"),
        ({"sql": "SELECT id, id FROM events"}, "two columns with the same name"),
        ({"sql": "SELECT INTERVAL '1' MONTH AS i FROM events"}, "its result"),
        ({"sql": "SELECT 1 AS one"}, "does not read the view events"),
        ({"sql": "SELECT id FROM events", "code_hash": "0" * 64}, "other code"),
        ({"sql": "SELECT id FROM events", "schema_ddl": "id BIGINTEGER"}, "BIGINTEGER"),
        ({"sql": "", "function": "no_module:f"}, "no_module"),
        ({"sql": "", "function": "user_functions:none", "code_path": USER}, "no function none"),
        ({"sql": "", "function": "user_functions:not_a_frame", "code_path": USER}, "not a DataFrame"),
        ({"sql": "SELECT count(*) n FROM events", "checkpoint_dir": "unused"}, "watermark"),
        ({"sql": "SELECT count(*) n FROM events"}, "no checkpoint folder"),
    ],
)
async def test_what_cannot_run_is_refused_with_the_reason(
    host: HostProcess, tmp_path: Path, spec: dict[str, str], said: str
) -> None:
    if "checkpoint_dir" in spec:
        spec = spec | {"checkpoint_dir": str(tmp_path)}
    async with host.gateway() as gateway:
        wanted = OpenQuery(**({"query": "bad", "epoch": 1, "schema_ddl": "id BIGINT"} | spec))  # type: ignore[arg-type]
        assert said in await refusal(gateway, wanted)


async def test_a_function_runs_with_its_module_and_the_hash_both_sides_compute(host: HostProcess) -> None:
    spec = OpenQuery(
        query="shout", epoch=1, schema_ddl="id BIGINT, name STRING", function="user_functions:shout", code_path=USER
    )
    spec = replace(spec, code_hash=query_hash(spec))
    async with host.gateway() as gateway:
        query = await gateway.open(spec)
        await query.send(0, [{"id": 1, "name": "a"}, {"id": 2, "name": None}])
        ((_, batch),) = await query.completed(1)
        assert batch.to_pylist() == [{"id": 1, "name": "+a"}]


async def test_analysis_starts_nothing(host: HostProcess) -> None:
    async with host.gateway() as gateway:
        spec = OpenQuery(
            query="only", epoch=1, schema_ddl="id BIGINT", sql="SELECT count(*) n FROM events", analyse_only=True
        )
        query = await gateway.open(spec)
        assert query.ready.plan.switch_class == "whole"
        assert query.ready.plan.reason.startswith("it aggregates over many events; it is not keyed, because")
        assert query.result_schema.names == ["n"]
        await query.send(0, [{"id": 1}])
        await gateway.open(UPPER)
        assert not [each for each in gateway.others if isinstance(each, Completed | QueryFailed)]


async def test_state_goes_on_when_the_sink_has_the_results(host: HostProcess, tmp_path: Path) -> None:
    spec = totals(tmp_path / "state")
    async with host.gateway() as gateway:
        query = await gateway.open(spec)
        assert query.ready.resume_seq == 0
        await query.send(0, one_name(0, 11))
        ((message, batch),) = await query.completed(1)
        assert (message.first_seq, message.last_seq) == (0, 10)
        assert [row["total"] for row in batch.to_pylist()] == [0, 55]
        await gateway.link.send(CommittedMessage(query="totals", epoch=1, last_seq=10))
        await query.send(11, one_name(11, 10))
        ((message, batch),) = await query.completed(1)
        assert [row["total"] for row in batch.to_pylist()] == [210]
    async with host.gateway() as gateway:
        query = await gateway.open(spec)
        assert (query.ready.resume_seq, query.ready.resume_end_seq) == (11, 21)
        await query.send(11, one_name(11, 10))
        ((message, batch),) = await query.completed(1)
        assert (message.first_seq, message.last_seq) == (11, 20)
        assert [row["total"] for row in batch.to_pylist()] == [210]


async def test_parts_of_a_query_run_side_by_side_and_their_heartbeats_give_no_rows(host: HostProcess) -> None:
    columns = pa.schema([("name", pa.string()), ("id", pa.int64()), (HEARTBEAT, pa.bool_())])
    async with host.gateway() as gateway:
        for index in range(2):
            spec = OpenQuery(
                query=f"orders.{index}",
                epoch=1,
                schema_ddl="name STRING, id BIGINT",
                function="user_functions:totals",
                code_path=USER,
                checkpoint_dir=state_folder(f"orders.{index}", "ab"),
                max_batch_runs=1,
                part=KeyPart(key="name", index=index, parts=2),
            )
            query = await gateway.open(replace(spec, code_hash=query_hash(spec)))
            assert query.input_schema.names == ["name", "id"]
            query.encoder = Encoder(columns, codecs=CodecPolicy("zstd"))
            rows = {"name": ["b", "a", "b"], "id": [10, 20, 30], HEARTBEAT: [index == 1, index == 0, index == 1]}
            await query.send(0, pa.RecordBatch.from_pydict(rows, columns))
            ((completed, batch),) = await query.completed(1)
            assert (completed.query, completed.poison) == (f"orders.{index}", ())
            assert batch.column("total").to_pylist() == ([20] if index else [10, 40])


async def test_garbage_fails_the_query_and_it_can_be_opened_again(host: HostProcess) -> None:
    async with host.gateway() as gateway:
        query = await gateway.open(UPPER)
        await query.send_payload(0, 5, b"no payload")
        failed, _ = await gateway.expect(QueryFailed)
        assert "run 0-4 cannot be decoded" in failed.reason
        again = await gateway.open(UPPER)
        await again.send(0, rows(1, 1))
        assert (await again.completed(1))[0][1].num_rows == 1


async def ended(host: HostProcess, family: list[psutil.Process]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while host.process.poll() is None or any(each.is_running() and each.status() != "zombie" for each in family):
            await asyncio.sleep(0.1)


def totals(state: Path) -> OpenQuery:
    return OpenQuery(
        query="totals",
        epoch=1,
        schema_ddl="id BIGINT, name STRING",
        function="user_functions:totals",
        code_path=USER,
        checkpoint_dir=str(state),
    )


async def test_killed_it_leaves_no_process_behind_and_its_state_goes_on_elsewhere(tmp_path: Path) -> None:
    spec = totals(tmp_path / "state")
    async with host_process(tmp_path / "first", extra=["--cpus", "0"]) as host, host.gateway() as gateway:
        await gateway.until_ready()
        query = await gateway.open(spec)
        await query.send(0, one_name(0, 11))
        ((_, batch),) = await query.completed(1)
        assert [row["total"] for row in batch.to_pylist()] == [0, 55]
        await gateway.link.send(CommittedMessage(query="totals", epoch=1, last_seq=10))
        await query.send(11, one_name(11, 10))
        await query.completed(1)
        family = host.family()
        assert any("java" in each.name() for each in family)
        assert all(each.cpu_affinity() == [0] for each in family)
        os.kill(host.process.pid, signal.SIGKILL)
        await ended(host, family)
    async with host_process(tmp_path / "second") as host, host.gateway() as gateway:
        await gateway.until_ready()
        query = await gateway.open(spec)
        assert (query.ready.resume_seq, query.ready.resume_end_seq) == (11, 21)
        await query.send(11, one_name(11, 10))
        ((message, batch),) = await query.completed(1)
        assert (message.first_seq, message.last_seq) == (11, 20)
        assert [row["total"] for row in batch.to_pylist()] == [210]
        family = host.family()
        await gateway.link.send(Shutdown())
        await ended(host, family)
    assert host.process.returncode == 0
    assert "ended: the gateway asked for it" in (tmp_path / "second" / "log").read_text()


async def test_when_its_jvm_dies_it_ends_and_says_so(tmp_path: Path) -> None:
    async with host_process(tmp_path) as host, host.gateway() as gateway:
        await gateway.until_ready()
        await gateway.open(UPPER)
        family = host.family()
        next(each for each in family if "java" in each.name()).kill()
        await ended(host, family)
    assert host.process.returncode == 1
    assert "ended: Spark's JVM ended" in (tmp_path / "log").read_text()


async def test_without_spark_it_ends_at_once_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.memory nonsense\n")
    async with host_process(tmp_path / "host") as host:
        await ended(host, [])
    assert host.process.returncode == 2
    assert "Spark did not start" in (tmp_path / "host" / "log").read_text()


async def test_without_a_gateway_it_ends_itself(tmp_path: Path) -> None:
    async with host_process(tmp_path, orphan_after_s=1.0) as host:
        await ended(host, [])
    assert host.process.returncode == 0
    assert "no gateway for" in (tmp_path / "log").read_text()
