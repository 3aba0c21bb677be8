"""What queries emit in each output mode, and which queries may have it."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engines.query.known import KnownQuery, RefusedError, understand
from engines.spark.session import sibling
from engines.streamable import check_streams
from engines.streaming.checkpoints import ResumePoint
from gateway.config import load
from gateway.query.opening import definition_of
from infra.messages import EventTime, OpenQuery, OutputMode
from tests.engines.running_totals import rows
from tests.engines.stream_bench import Bench, Running

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "output-modes.md").read_text()
TOTALS = "SELECT name, sum(id) AS total, count(*) AS n FROM events GROUP BY name"
BY_NAME = OutputMode(mode="update", key=("name",))
COMPLETE = OutputMode(mode="complete")


def opened(bench: Bench, folder: Path, sql: str, output: OutputMode, *, commits: bool = True) -> Running:
    return bench.open(sql, output=output, checkpoint_dir=str(folder), max_batch_runs=2, commits=commits)


def emitted(running: Running) -> list[tuple[tuple[int, int], list[dict[str, Any]]]]:
    """Return the limits of each answered micro-batch, and its rows by name."""
    answers = running.collected.answers
    found = [sorted(each.rows.to_pylist(), key=lambda row: str(row["name"])) for each in answers]
    return list(zip(running.limits(), found, strict=True))


def by_hand(limits: list[tuple[int, int]], *, complete: bool = False) -> list[list[dict[str, Any]]]:
    """Return what the micro-batches with these limits emit: plain Python, event by event."""
    totals, counts = defaultdict[str, int](int), defaultdict[str, int](int)
    found = []
    for first, end in limits:
        events = rows(first, end - first)
        for event in events:
            totals[event["name"]] += event["id"]
            counts[event["name"]] += 1
        names = sorted(totals if complete else {event["name"] for event in events})
        found.append([{"name": name, "total": totals[name], "n": counts[name]} for name in names])
    return found


def test_update_emits_changed_rows_and_the_same_again_if_the_sink_never_had_them(bench: Bench, tmp_path: Path) -> None:
    first = opened(bench, tmp_path, TOTALS, BY_NAME, commits=False)
    first.put_seqs(0, rows(0, 10))
    first.collected.wait(1)
    first.stream.committed(9)
    first.put_seqs(10, rows(10, 1))
    first.collected.wait(2)
    first.stream.drop_waiting()
    first.collected.wait_for_death()
    first.stream.close()
    (_, lost) = emitted(first)

    second = opened(bench, tmp_path, TOTALS, BY_NAME)
    assert second.stream.progress == ResumePoint(*lost[0])
    for seq, count in ((10, 1), (11, 4), (15, 5)):
        second.put_seqs(seq, rows(seq, count))
    second.rows_until(20)
    again = emitted(second)
    assert again[0] == lost
    limits = [(0, 10), *(limits for limits, _ in again)]
    assert [found for _, found in again] == by_hand(limits)[1:]
    assert lost == ((10, 11), [{"name": "n1", "total": 22, "n": 4}])


def test_a_query_that_continues_from_a_copy_elsewhere_emits_the_same_rows_again(bench: Bench, tmp_path: Path) -> None:
    """As when a VM is lost: home continues from the last copy, with the ends of the micro-batches since then."""
    first = opened(bench, tmp_path / "here", TOTALS, COMPLETE)
    first.put_seqs(0, rows(0, 5))
    first.rows_until(5)
    first.wait_for_commit(5)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    runs = [(5, 2), (7, 1), (8, 6), (14, 1), (15, 5)]
    for seq, count in runs:
        first.put_seqs(seq, rows(seq, count))
    first.rows_until(20)
    first.stream.close()
    ends = tuple(end for _, end in first.limits() if end > 5)

    second = bench.open(
        TOTALS, output=COMPLETE, checkpoint_dir=str(tmp_path / "there"), max_batch_runs=8, batch_ends=ends
    )
    assert second.stream.progress.resume_seq == 5
    for seq, count in (*runs, (20, 3)):
        second.put_seqs(seq, rows(seq, count))
    second.rows_until(23)
    assert emitted(second)[: len(ends)] == emitted(first)[1:]
    assert [found for _, found in emitted(first)] == by_hand(first.limits(), complete=True)


def test_complete_emits_all_rows_each_time_and_may_sort_and_leave_out(bench: Bench, tmp_path: Path) -> None:
    sql = f"SELECT * FROM ({TOTALS}) WHERE total % 2 = 0 ORDER BY total DESC LIMIT 2"
    running = opened(bench, tmp_path, sql, COMPLETE)
    for first in range(0, 8, 2):
        running.put_seqs(first, rows(first, 2))
        running.rows_until(first + 2)
    wanted = [
        sorted((row for row in found if row["total"] % 2 == 0), key=lambda row: -row["total"])[:2]
        for found in by_hand(running.limits(), complete=True)
    ]
    assert [answer.rows.to_pylist() for answer in running.collected.answers] == wanted
    assert {len(found) for found in wanted} > {1}


def test_windows_are_updated_until_the_watermark_has_passed_them(bench: Bench, tmp_path: Path) -> None:
    seconds = [(1, 2, 11), (3, 14), (31,), (4, 33), (5, 34)]
    sql = "SELECT window.start AS start, count(*) AS n FROM events GROUP BY window(at, '10 seconds')"
    running = bench.open(
        sql,
        schema="at TIMESTAMP",
        event_time=EventTime(column="at", lateness_ms=5000),
        output=OutputMode(mode="update", key=("start",)),
        keep_late=("",),
        checkpoint_dir=str(tmp_path),
        max_batch_runs=1,
    )
    put = 0
    for batch in seconds:
        running.put_seqs(put, [{"at": dt.datetime(2020, 1, 1, second=second, tzinfo=dt.UTC)} for second in batch])
        put += len(batch)
        running.rows_until(put)
    found = [{row["start"].second: row["n"] for row in answer.rows.to_pylist()} for answer in running.collected.answers]
    # The watermark of 26 s comes from the third micro-batch; late rows are dropped one micro-batch later.
    assert found == [{0: 2, 10: 1}, {0: 3, 10: 2}, {30: 1}, {0: 4, 30: 2}, {30: 3}]
    assert [answer.state.too_late for answer in running.collected.answers] == [0, 0, 0, 0, 1]
    assert [answer.late.rows for answer in running.collected.answers] == [(), (), (), (), (0,)]


def test_a_bad_row_is_left_out_of_the_rows_that_it_would_have_changed(bench: Bench, tmp_path: Path) -> None:
    sql = "SELECT name, sum(CAST(text AS INT)) AS total FROM events GROUP BY name"
    running = bench.open(
        sql, schema="name STRING, text STRING", output=BY_NAME, checkpoint_dir=str(tmp_path), max_batch_runs=1
    )
    running.put_seqs(0, [{"name": "a", "text": "1"}, {"name": "b", "text": "2"}])
    running.rows_until(2)
    running.put_seqs(2, [{"name": "a", "text": "3"}, {"name": "b", "text": "x"}])
    running.rows_until(4)
    last = running.collected.answers[-1]
    assert last.rows.to_pylist() == [{"name": "a", "total": 4}]
    assert [bad.row for bad in last.poison] == [1]


def checked(spark: SparkSession, sql: str, output: OutputMode, **spec: Any) -> KnownQuery:
    schema = "id BIGINT, name STRING, city STRING, score DOUBLE, at TIMESTAMP"
    query = understand(spark, OpenQuery(query="q", epoch=0, schema_ddl=schema, sql=sql, output=output, **spec))
    check_streams(query)
    return query


AT = EventTime(column="at", lateness_ms=1000)


def update(*key: str) -> OutputMode:
    return OutputMode(mode="update", key=key)


@pytest.mark.parametrize(
    ("sql", "output", "event_time", "found"),
    [
        ("SELECT name, sum(id) AS total FROM events GROUP BY name", update("name"), None, ("keyed", ("name",))),
        ("SELECT name, sum(id) AS total FROM events GROUP BY name", COMPLETE, None, ("whole", ())),
        ("SELECT count(*) AS n FROM events", update(), None, ("whole", ())),
        (
            "SELECT city AS c, sum(id) AS total, name FROM events GROUP BY name, city",
            update("name", "c"),
            None,
            ("keyed", ("name", "city")),
        ),
        ("SELECT upper(name) AS n, count(*) FROM events GROUP BY upper(name)", update("n"), None, ("whole", ())),
        (
            "SELECT window.end AS e, name, count(*) AS n FROM events GROUP BY window(at, '1 minute'), name",
            update("e", "name"),
            AT,
            ("keyed", ("name",)),
        ),
        ("SELECT window, count(*) n FROM events GROUP BY window(at, '1 hour')", update("window"), AT, ("whole", ())),
        (
            (
                "CREATE TEMP VIEW t AS SELECT name, sum(id) AS s FROM events GROUP BY name; "
                "WITH u AS (SELECT name AS who, s * 2 AS twice FROM t) SELECT u.twice, u.who FROM u"
            ),
            update("who"),
            None,
            ("keyed", ("name",)),
        ),
        ("SELECT name, sum(id) t FROM events GROUP BY name HAVING name LIKE 'a%'", update("name"), None, None),
        ("SELECT name, sum(id) t FROM events GROUP BY name HAVING t > 3 ORDER BY t", COMPLETE, None, None),
        # What the results are grouped by is not known here: the key is what the config says.
        ("SELECT DISTINCT name, city FROM events", update("name", "city"), None, None),
        (
            (
                "SELECT t.name, s, two FROM (SELECT name, sum(id) s FROM events GROUP BY name) t "
                "JOIN (VALUES ('a', 2)) AS v(name, two) ON t.name = v.name"
            ),
            update("name"),
            None,
            None,
        ),
    ],
)
def test_these_have_the_mode_and_their_class(
    spark: SparkSession, sql: str, output: OutputMode, event_time: EventTime | None, found: tuple[str, Any] | None
) -> None:
    plan = checked(spark, sql, output, event_time=event_time).plan
    assert plan.movable, "its state is moved as it is"
    if found is not None:
        assert (plan.switch_class, plan.keys) == found


@pytest.mark.parametrize(
    ("sql", "output", "says"),
    [
        ("SELECT name FROM events", update("name"), "each event is processed alone, so no result ever changes: remove"),
        ("SELECT name FROM events", COMPLETE, "each event is processed alone, so no result ever changes: remove"),
        (
            "SELECT name, sum(id) t FROM events GROUP BY name",
            update("nam"),
            'output.key: "nam" is not a column of the results; they have name, t',
        ),
        (
            "SELECT name, city, sum(id) t FROM events GROUP BY name, city",
            update("name"),
            "output.key: [name] does not name a row, since it groups by more: write key: [name, city]",
        ),
        (
            "SELECT name, city AS c, sum(id) t FROM events GROUP BY name, city",
            update("c", "t"),
            (
                "output.key: t is not what it groups by: a row with another value in it would not replace the earlier "
                "one; write key: [name, c]"
            ),
        ),
        (
            "SELECT sum(id) t FROM events GROUP BY name",
            update("t"),
            "it groups by an expression that its results do not contain, so nothing in them names a row",
        ),
        (
            "SELECT lower(name) AS name, sum(id) t FROM events GROUP BY events.name",
            update("name"),
            "it groups by an expression that its results do not contain",
        ),
        ("SELECT score, count(*) n FROM events GROUP BY score", update("score"), "output.key: score is DOUBLE, whose"),
        (
            "SELECT name, sum(id) t FROM events GROUP BY name HAVING t > 3",
            update("name"),
            "a condition on aggregates (HAVING) do not go together",
        ),
        (
            "SELECT * FROM (SELECT name, sum(id) t FROM events GROUP BY name) WHERE t > 3",
            update("name"),
            "a condition on aggregates (HAVING) do not go together",
        ),
        ("SELECT name, sum(id) _op FROM events GROUP BY name", update("name"), "update adds a column _op to the"),
        ("SELECT name, sum(id) t FROM events GROUP BY ROLLUP(name)", update("name"), "do not contain, so nothing"),
        # Spark's own refusals say what to write in the config.
        ("SELECT name, sum(id) t FROM events GROUP BY name", OutputMode(), "or write output: {mode: update, key: ["),
        (
            "SELECT name, sum(id) t FROM events GROUP BY name ORDER BY t",
            update("name"),
            "write output: {mode: complete}",
        ),
        (
            "SELECT l.name FROM events l JOIN events r ON l.id = r.id",
            COMPLETE,
            "output.mode complete is for aggregations, and it has none: write mode: append",
        ),
        (
            "SELECT name, sum(id) t FROM events GROUP BY name LIMIT 3",
            update("name"),
            "LIMIT and output.mode update do not go together",
        ),
        (
            "SELECT n, count(*) c FROM (SELECT name, count(*) n FROM events GROUP BY name) GROUP BY n",
            update("n"),
            "several of its steps keep state",
        ),
        (
            "SELECT session_window.end AS e, count(*) n FROM events GROUP BY session_window(at, '1 minute')",
            update("e"),
            "session windows have no output.mode update",
        ),
    ],
)
def test_these_are_refused_with_what_to_do(spark: SparkSession, sql: str, output: OutputMode, says: str) -> None:
    with pytest.raises(RefusedError) as caught:
        checked(spark, sql, output)
    assert says in str(caught.value)


def test_spark_accepts_what_the_documents_and_the_example_show(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").touch()
    page = PAGE.split("```yaml\n")[1].split("```")[0]
    (tmp_path / "page.yaml").write_text(f"gateway: {{state_dir: state}}\n{page}")
    names = {"SPILLWAY_ORDERS": str(tmp_path / "orders.jsonl")}
    seen = []
    for path in (tmp_path / "page.yaml", ROOT / "examples" / "totals.yaml"):
        for name, config in load(path, names).queries.items():
            check_streams(understand(spark, definition_of(name, config, "", Path())))
            seen.append((name, config.output.mode, bool(config.keep_late)))
    assert seen == [
        ("totals", "update", False),
        ("totals", "update", False),
        ("best", "complete", False),
        ("minutes", "append", True),
    ]


def test_the_tables_of_the_documents_are_what_the_marked_rows_mean(spark: SparkSession) -> None:
    updates, snapshots = (docs.split(";")[0] for docs in PAGE.split("```sql\n")[1].split("-- complete:"))
    rows = [("ann", 1, "U", 3), ("bob", 2, "U", 3), ("ann", 5, "U", 9), ("cid", None, "U", 12)]
    marked = "customer STRING, total INT, _op STRING, _seq BIGINT"
    session = sibling(spark)
    session.createDataFrame(rows, marked).createOrReplaceTempView("parts")
    assert sorted(map(tuple, session.sql(updates.partition("\n")[2]).collect())) == [
        ("ann", 5),
        ("bob", 2),
        ("cid", None),
    ]
    shots: list[tuple[Any, ...]] = [(None, None, "S", 3), ("ann", 1, "U", 3), (None, None, "S", 9)]
    shots += [("bob", 7, "U", 9), ("cid", 8, "U", 9)]
    session.createDataFrame(shots, marked).createOrReplaceTempView("parts")
    assert [row["customer"] for row in session.sql(snapshots.partition("\n")[2]).collect()] == ["bob", "cid"]
    session.createDataFrame([*shots, (None, None, "S", 10)], marked).createOrReplaceTempView("parts")
    assert session.sql(snapshots.partition("\n")[2]).collect() == []
