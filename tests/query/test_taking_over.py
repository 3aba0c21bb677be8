"""State of an earlier start with another definition or source: continued or refused; events are never skipped."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.models import SparkConfig
from gateway.connectors.position import Position
from gateway.query import takingover
from gateway.query.flow import runlog as runlog_module
from gateway.query.flow.runlog import LogHead, RunLog
from gateway.sources.marks import FileMark
from infra.payload.tablefiles import pack
from infra.statefiles import StateError
from tests.support.query_site import Engine, Site, at
from tests.support.waiting import until


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


# ------------------------------------------------------------------------------------------------- another definition


async def test_a_changed_query_goes_on_at_the_next_event_and_finishes_the_old_ones_by_the_old(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.write("in.jsonl", range(40))
    await site.read_only(sql="SELECT old")
    site.write("in.jsonl", range(100))
    opened = await site.drain(sql="SELECT new")
    assert site.rows() == [(i, "SELECT old") for i in range(40)] + [(i, "SELECT new") for i in range(40, 100)]
    assert [opened[epoch].sql for epoch in sorted(opened)] == ["SELECT old", "SELECT new"]
    assert "the new one begins with seq 40" in caplog.text


async def test_a_query_that_had_delivered_all_changes_at_once(site: Site) -> None:
    site.write("in.jsonl", range(40))
    await site.drain(sql="SELECT old")
    site.write("in.jsonl", range(60))
    opened = await site.drain(sql="SELECT new")
    assert [asked.sql for asked in opened.values()] == ["SELECT new"]
    assert Counter(sql for _, sql in site.rows()) == {"SELECT old": 40, "SELECT new": 20}
    assert site.ids() == list(range(60))


async def test_another_layout_is_no_change(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.write("in.jsonl", range(40))
    await site.drain(sql="SELECT COUNT old FROM events")
    site.write("in.jsonl", range(60))
    await site.drain(sql="SELECT COUNT  Old -- what is old\n from EVENTS")
    assert site.ids() == list(range(60))
    assert "its definition changed" not in caplog.text


async def test_a_definition_that_cannot_be_opened_leaves_the_state_as_it_is(site: Site) -> None:
    site.write("in.jsonl", range(40))
    await site.read_only(sql="SELECT old")
    with pytest.raises(Exception, match="it is nonsense"):
        await site.drain(sql="SELECT NONSENSE")
    await site.drain(sql="SELECT old")
    assert site.rows() == [(i, "SELECT old") for i in range(40)]


async def test_a_stateful_query_says_what_it_would_lose_and_begins_anew_only_if_told(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.write("in.jsonl", range(40))
    await site.read_only(sql="SELECT COUNT old")
    site.write("in.jsonl", range(70))
    with pytest.raises(StateError, match=r"query q: its definition changed, and it holds state .*new_epoch: true"):
        await site.drain(sql="SELECT COUNT new")
    opened = await site.drain(sql="SELECT COUNT new", new_epoch=True)
    assert site.rows() == [(i, "SELECT COUNT old") for i in range(40)] + [
        (i, "SELECT COUNT new") for i in range(40, 70)
    ]
    last = opened[max(opened)]
    assert last.begin_seq == 40
    assert [path.name for path in (site.folder / "state/queries/q").glob("checkpoints*")] == [
        Path(last.checkpoint_dir).name
    ]
    assert "remove new_epoch from the config" in caplog.text
    site.write("in.jsonl", range(80))
    await site.drain(sql="SELECT COUNT new", new_epoch=True)
    assert site.ids() == list(range(80))


async def test_the_state_of_a_query_is_where_executors_find_it(site: Site) -> None:
    site.write("in.jsonl", range(10))
    (shared := site.folder / "shared").mkdir()
    on_cluster, in_shared = {"master": "spark://a:7077"}, {"checkpoints": shared}
    for state, said in (("local", in_shared), ("cluster", on_cluster | in_shared)):
        more = {"spark": SparkConfig.model_validate(said), "sink": {"type": "file", "path": f"out-{state}"}}
        (opened,) = (await site.drain(sql="SELECT COUNT", state=state, **more)).values()
        assert Path(opened.checkpoint_dir).parent == shared
    (opened,) = (await site.drain(sql="SELECT b", spark=SparkConfig.model_validate(on_cluster))).values()
    assert opened.checkpoint_dir == "", "executors do not see the state_dir"
    with pytest.raises(StateError, match="a checkpoint cannot be moved"):
        await site.drain(sql="SELECT COUNT", state="local", sink={"type": "file", "path": "out-local"})


@pytest.fixture
def function(site: Site) -> Path:
    module = site.folder / "userfunction.py"
    module.write_text("def answer(events):\n    return events\n")
    return module


async def test_a_function_that_changed_with_events_outstanding_is_refused_until_it_is_back(
    site: Site, function: Path
) -> None:
    site.write("in.jsonl", range(40))
    said = {"function": "userfunction:answer", "sql": None}
    await site.read_only(**said)
    before = function.read_text()
    function.write_text("def answer(events):\n    return events.limit(1)\n")
    with pytest.raises(StateError, match=r"the old definition is not there.*Restore the old one"):
        await site.drain(**said)
    function.write_text(before)
    await site.drain(**said)
    function.write_text("def answer(events):\n    return events.limit(1)\n")
    site.write("in.jsonl", range(50))
    await site.drain(**said)
    assert site.ids() == list(range(50))


async def test_a_changed_table_is_read_once_the_old_one_has_served_what_was_read(site: Site) -> None:
    site.write("in.jsonl", range(40))
    old, new = (site.folder / f"{name}.csv" for name in ("old", "new"))
    old.write_text("1,Ann\n")
    new.write_text("1,Ann,x\n")
    before = {"t": {"path": str(old), "format": "csv", "schema": "id INT, name STRING"}}
    after = {"t": {"path": str(new), "format": "csv", "schema": "id INT, name STRING, more STRING"}}
    await site.read_only(tables=before)
    versions = [pack(path).fingerprint for path in (old, new)]
    site.write("in.jsonl", range(60))
    old.rename(gone := site.folder / "gone.csv")
    with pytest.raises(StateError, match=r"the files of one of its tables are gone"):
        await site.drain(tables=after)
    gone.rename(old)
    opened = await site.drain(tables=after)
    tables = [table for epoch in sorted(opened) for table in opened[epoch].tables]
    assert [(table.fingerprint, table.schema_ddl) for table in tables] == [
        (versions[0], "id INT, name STRING"),
        (versions[1], "id INT, name STRING, more STRING"),
    ]
    assert site.ids() == list(range(60))


# ----------------------------------------------------------------------------------------------------- another source


async def test_rows_under_another_path_are_all_delivered(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.write("in.jsonl", range(1880))
    await site.drain()
    site.write("new/in.jsonl", range(5000, 8000))
    await site.drain(**at("new/in.jsonl"))
    assert site.ids() == [*range(1880), *range(5000, 8000)]
    (line,) = [record.message for record in caplog.records if "its state is from" in record.message]
    assert str(site.folder / "in.jsonl") in line
    assert str(site.folder / "new/in.jsonl") in line
    assert "as seq 1880" in line


async def test_other_content_under_the_same_name_is_begun_at_its_start(site: Site) -> None:
    site.write("in.jsonl", range(100))
    await site.drain()
    site.write("in.jsonl", range(500, 800))
    await site.drain()
    assert site.ids() == [*range(100), *range(500, 800)]


async def test_the_same_content_under_another_path_goes_on(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.write("in.jsonl", range(100))
    await site.read_only()
    (site.folder / "in.jsonl").rename(site.folder / "moved.jsonl")
    with (site.folder / "moved.jsonl").open("a") as file:
        file.writelines(json.dumps({"id": i}) + "\n" for i in range(100, 130))
    await site.drain(**at("moved.jsonl"))
    assert site.ids() == list(range(130))
    assert "reading continues there" in caplog.text


async def test_another_source_with_events_outstanding_is_refused_and_the_remedy_works(site: Site) -> None:
    site.write("in.jsonl", range(100))
    await site.read_only()
    site.write("new.jsonl", range(500, 530))
    with pytest.raises(StateError, match=r"100 events .* cannot be read again: .*Restore the old source"):
        await site.drain(**at("new.jsonl"))
    await site.drain()
    await site.drain(**at("new.jsonl"))
    assert site.ids() == [*range(100), *range(500, 530)]


async def test_both_may_change_at_once(site: Site) -> None:
    site.write("in.jsonl", range(30))
    await site.drain(sql="SELECT old")
    site.write("new.jsonl.gz", range(50, 90))
    await site.drain(sql="SELECT new", **at("new.jsonl.gz"))
    assert site.rows() == [(i, "SELECT old") for i in range(30)] + [(i, "SELECT new") for i in range(50, 90)]


async def test_state_without_a_mark_is_taken_as_it_is_and_gets_one(site: Site) -> None:
    site.write("in.jsonl", range(30))
    await site.drain()
    log = site.folder / "state/queries/q/runs.log"
    head = json.loads(log.read_text().partition(" ")[2])
    del head["source"]
    body = json.dumps(head).encode()
    log.write_bytes(b"%08x %s\n" % (zlib.crc32(body), body))
    site.write("in.jsonl", range(40))
    await site.drain()
    assert site.ids() == list(range(40))
    assert json.loads(log.read_text().partition(" ")[2])["source"]["type"] == "file"


async def test_a_folder_that_was_moved_goes_on_and_another_one_begins(site: Site) -> None:
    for name in ("a", "b"):
        site.write(f"in/{name}.jsonl", range(10) if name == "a" else range(10, 20))
    await site.drain(**at("in"))
    (site.folder / "in").rename(site.folder / "moved")
    site.write("moved/c.jsonl", range(20, 30))
    await site.drain(**at("moved"))
    assert site.ids() == list(range(20)), "a folder that is not followed has the files of the first look"
    site.write("other/a.jsonl", range(100, 110))
    await site.drain(**at("other"))
    assert site.ids() == [*range(20), *range(100, 110)]


async def test_a_folder_whose_files_were_all_replaced_is_read_again(site: Site) -> None:
    site.write("in/a.jsonl", range(10))
    await site.drain(**at("in"))
    site.write("in/a.jsonl", range(10, 20))
    await site.drain(**at("in"))
    assert site.ids() == list(range(20))


async def test_a_followed_folder_takes_a_replaced_file_as_a_new_one(site: Site) -> None:
    site.write("in/a.jsonl", range(10))
    site.write("in/b.jsonl", range(10, 20))
    for wanted in ([*range(20)], [*range(20), *range(30, 40)]):
        async with site.started(Engine(), **at("in", follow=True)) as query:
            await until(lambda: len(site.ids()) >= len(wanted) and query.pipeline.idle)  # noqa: B023 -- awaited here
        assert site.ids() == wanted
        site.write("in/a.jsonl", range(30, 40))


async def test_from_a_file_to_a_folder_and_back_nothing_is_skipped(site: Site) -> None:
    site.write("in.jsonl", range(10))
    site.write("in/a.jsonl", range(20, 30))
    await site.drain()
    await site.drain(**at("in"))
    site.write("in.jsonl", range(50, 60))
    await site.drain()
    assert site.ids() == [*range(10), *range(20, 30), *range(50, 60)]


class KilledError(Exception):
    """Stands for a kill: an error that nothing retries, unlike a disk failure."""


@pytest.mark.parametrize("where", ["begin_source", "note_source", "redefine", "claim", "remove_old_checkpoints"])
async def test_a_start_that_dies_anywhere_in_it_loses_and_repeats_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    site.write("in/a.jsonl", range(10))
    site.write("in/b.jsonl", range(10, 20))
    site.write("new/a.jsonl", range(30, 40))
    await site.drain(sql="SELECT COUNT old", **at("in"))
    said = {"sql": "SELECT COUNT new", "new_epoch": True, **at("new")}
    owner = RunLog if where.endswith("source") else takingover

    def dies(*_: object) -> None:
        raise KilledError("kill -9")

    with monkeypatch.context() as patch:
        patch.setattr(owner, where, dies)
        if where == "note_source":
            await site.drain(**said)  # it is called only where the source is the same
        with pytest.raises(KilledError):
            await site.drain(**said)
    await site.drain(**said)
    assert site.rows() == [(i, "SELECT COUNT old") for i in range(20)] + [
        (i, "SELECT COUNT new") for i in range(30, 40)
    ]


@settings(max_examples=25)
@given(
    old=st.integers(1, 60),
    kept=st.integers(0, 60),
    new=st.integers(1, 60),
    same_name=st.booleans(),
    delivered=st.booleans(),
)
async def test_each_row_of_a_new_source_is_delivered_once_or_the_start_is_refused(
    tmp_path_factory: pytest.TempPathFactory, old: int, kept: int, new: int, same_name: bool, delivered: bool
) -> None:
    """The new source has ``kept`` of the old one's rows, and then ``new`` of its own."""
    site = Site(tmp_path_factory.mktemp("site"))
    site.write("in.jsonl", range(old))
    await (site.drain() if delivered else site.read_only())
    name = "in.jsonl" if same_name else "new.jsonl"
    ids = [*range(min(kept, old)), *range(1000, 1000 + new)]
    (site.folder / name).write_text("".join(json.dumps({"id": i, "text": "x"}) + "\n" for i in ids))
    try:
        await site.drain(**at(name))
    except StateError:
        assert kept < old, "what was only appended to is no other source"
        assert not delivered
        return
    expected = [*range(old), *range(1000, 1000 + new)] if kept >= old else [*range(old), *ids]
    assert site.ids() == expected


def test_positions_and_mark_change_in_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, old, new = tmp_path / "runs.log", FileMark("a", 3, "x"), FileMark("b", 4, "y")
    log = RunLog(path, LogHead("me", 0.0, source=old, position=Position(5, 0, 50), next_seq=5))

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(runlog_module, "write_atomically", full)
        with pytest.raises(OSError, match="No space"):
            log.begin_source(new, Position(), 9.0)
    assert (log.head.source, log.position) == (old, Position(5, 0, 50))
    log.begin_source(new, Position(), 9.0)
    log.close()
    again = RunLog(path, LogHead("me", 0.0))
    assert (again.head.source, again.position, again.next_seq, again.head.started_wall_s) == (new, Position(), 5, 9.0)
    again.close()
