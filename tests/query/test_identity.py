from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gateway.connectors.position import Position
from gateway.journal.deadletters import DeadLetterFile
from gateway.query.flow.runlog import LogHead, RunLog
from gateway.query.identity import (
    checkpoints,
    checkpoints_of_a_trial,
    claim,
    holds_state,
    read_identity,
    redefine,
    remove_old_checkpoints,
)
from infra.messages import EventTime, OpenQuery, OutputMode, StaticTable
from infra.statefiles import StateError, owned

DEFINITION = OpenQuery(query="q", epoch=0, schema_ddl="id BIGINT", sql="SELECT id FROM events")
# What the first version made of DEFINITION.
HASH = "55952e21e35cae7a03b7f894a3e2d30db9064bf43e6b6c7ba6e2931f2de659d9"
# A state_dir as the first version wrote it, to the letter.
OLD = {
    "format": "1\n",
    "queries/q/query.json": f'{{"owner":"0123456789abcdef","code_hash":"{HASH}","epoch":3}}',
    "queries/q/runs.log": (
        '02e27bb4 {"type":"head","owner":"0123456789abcdef","started_wall_s":1700000000.25,"next_seq":10,'
        '"position":{"record":11,"part":0,"offset":990}}\n'
        '647af66f {"type":"run","first_seq":10,"last_seq":19,"start":{"record":11,"part":0,"offset":990},'
        '"end":{"record":21,"part":0,"offset":1890},"arrival_wall_s":1700000001.5,"disordered":true}\n'
    ),
    "queries/q/dead-letters.jsonl": '{"reason":"no JSON","raw":"oops","record":4,"offset":360}\n',
}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    for name, text in OLD.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_an_old_state_dir_opens(old: Path) -> None:
    with owned(old):
        folder = old / "queries" / "q"
        assert claim(folder, DEFINITION).epoch == 4
        log = RunLog(folder / "runs.log", LogHead("0123456789abcdef", 0.0))
        assert (log.next_seq, log.position, log.newest) == (20, Position(21, 0, 1890), None)
        assert [run.disordered for run in log.runs] == [True]
        assert log.head.next_seq == 10
        log.close()
        assert DeadLetterFile(folder / "dead-letters.jsonl").count == 1


@pytest.mark.parametrize("version", ["0", "2", "10", "x"])
def test_state_of_an_older_or_newer_format_is_refused_and_left_as_it_is(old: Path, version: str) -> None:
    (old / "format").write_text(f"{version}\n")
    with pytest.raises(StateError, match=f"has format {version}, this gateway reads 1: drain it"), owned(old):
        pass
    assert {name: (old / name).read_text() for name in OLD} == {**OLD, "format": f"{version}\n"}


def test_what_an_old_version_hashed_to_the_letter_is_still_known(old: Path) -> None:
    folder = old / "queries" / "q"
    kept = read_identity(folder)
    assert kept is not None
    assert kept.is_of(DEFINITION)
    assert not kept.is_of(msgspec.structs.replace(DEFINITION, sql="SELECT id + 1 FROM events"))
    assert kept.definition(DEFINITION) is None, "an old version kept no definition"
    assert {name: (old / name).read_text() for name in OLD} == OLD


def test_a_claimed_state_keeps_its_definition_whatever_its_layout(old: Path) -> None:
    folder = old / "queries" / "q"
    assert claim(folder, DEFINITION).owner == "0123456789abcdef"
    kept = read_identity(folder)
    assert kept is not None
    assert kept.is_of(msgspec.structs.replace(DEFINITION, sql="select   ID from EVENTS -- all of them"))
    changed = msgspec.structs.replace(DEFINITION, sql="SELECT id FROM events WHERE id > 5")
    assert not kept.is_of(changed)
    assert kept.definition(changed) == DEFINITION


def test_another_event_time_is_another_definition(old: Path) -> None:
    folder = old / "queries" / "q"
    timed = msgspec.structs.replace(DEFINITION, event_time=EventTime(column="at", lateness_ms=10_000))
    kept = read_identity(folder)
    assert kept is not None
    assert not kept.is_of(timed)
    claim(folder, timed)
    kept = read_identity(folder)
    assert kept is not None
    assert kept.is_of(timed)
    for now in (DEFINITION, msgspec.structs.replace(timed, event_time=EventTime(column="at", lateness_ms=9_000))):
        assert not kept.is_of(now)
        assert kept.definition(now) == timed


def test_another_output_is_another_definition(old: Path) -> None:
    folder = old / "queries" / "q"
    updated = msgspec.structs.replace(DEFINITION, output=OutputMode(mode="update", key=("a", "b")))
    claim(folder, updated)
    kept = read_identity(folder)
    assert kept is not None
    assert kept.is_of(updated)
    other_key = msgspec.structs.replace(updated, output=OutputMode(mode="update", key=("a",)))
    for now in (DEFINITION, other_key, msgspec.structs.replace(DEFINITION, output=OutputMode(mode="complete"))):
        assert not kept.is_of(now)
        assert kept.definition(now) == updated


def test_another_table_is_another_definition_which_its_files_can_finish(old: Path) -> None:
    folder, file = old / "queries" / "q", old / "customers.csv"
    file.write_text("1,Ann\n")
    table = StaticTable(name="customers", format="csv", schema_ddl="id INT, name STRING", path=str(file))
    joined = msgspec.structs.replace(DEFINITION, tables=(table,))
    claim(folder, joined)
    kept = read_identity(folder)
    assert kept is not None
    assert kept.is_of(joined)
    elsewhere = msgspec.structs.replace(table, path="/elsewhere/customers.csv")
    assert kept.is_of(msgspec.structs.replace(joined, tables=(elsewhere,)))
    for now in (DEFINITION, msgspec.structs.replace(joined, tables=(msgspec.structs.replace(table, header=True),))):
        assert not kept.is_of(now)
        assert kept.definition(now) == joined
    file.unlink()
    assert kept.definition(DEFINITION) is None


def test_another_definition_gets_another_place_for_its_state_and_the_old_one_goes(old: Path) -> None:
    folder = old / "queries" / "q"
    first = claim(folder, DEFINITION)
    assert not holds_state(folder, first)
    (checkpoints(folder, first) / "3" / "offsets").mkdir(parents=True)
    (checkpoints(folder, first) / "3" / "offsets" / "0").touch()
    assert holds_state(folder, first)
    redefine(folder, first, msgspec.structs.replace(DEFINITION, sql="SELECT 2"), 20)
    second = read_identity(folder)
    assert second is not None
    assert (second.owner, second.begin_seq, second.sql) == (first.owner, 20, "SELECT 2")
    assert checkpoints(folder, second) != checkpoints(folder, first)
    assert not holds_state(folder, second)
    remove_old_checkpoints(folder, second)
    assert not checkpoints(folder, first).exists()


def left_by_spark(start: Path) -> None:
    (start / "offsets").mkdir(parents=True)
    (start / "offsets" / "0").touch()


def test_gateways_share_a_folder_of_checkpoints_and_not_their_states(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    one, other = tmp_path / "one" / "q", tmp_path / "other" / "q"
    first = claim(one, DEFINITION, owner="agreed", shared=shared)
    second = claim(other, DEFINITION, owner="agreed", shared=shared)
    for folder, identity in ((one, first), (other, second)):
        assert checkpoints(folder, identity).parent == shared
        left_by_spark(checkpoints(folder, identity) / "1")
    assert checkpoints(one, first) != checkpoints(other, second)

    redefine(one, first, msgspec.structs.replace(DEFINITION, sql="SELECT 2"), 20)
    changed = read_identity(one)
    assert changed is not None
    assert not holds_state(one, changed)
    left_by_spark(checkpoints(one, changed) / "1")
    remove_old_checkpoints(one, changed)
    assert set(shared.iterdir()) == {checkpoints(one, changed), checkpoints(other, second)}


@pytest.mark.parametrize(("before", "after"), [("", "b"), ("a", ""), ("a", "b")])
def test_state_is_not_left_behind_when_its_place_changes(tmp_path: Path, before: str, after: str) -> None:
    folder = tmp_path / "q"
    first = claim(folder, DEFINITION, shared=tmp_path / before if before else None)
    now = tmp_path / after if after else None
    assert claim(folder, DEFINITION, shared=now).place == first.place, "there is no state yet"
    first = claim(folder, DEFINITION, shared=tmp_path / before if before else None)
    left_by_spark(checkpoints(folder, first) / "1")
    restore = f"set it to {tmp_path / before}" if before else "remove it"
    with pytest.raises(StateError, match=f"its state is in {checkpoints(folder, first)}.* {restore}; or remove"):
        claim(folder, DEFINITION, shared=now)
    assert read_identity(folder) == first


def test_a_trial_begins_without_state_and_beside_that_of_the_query(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    for place in (None, shared):
        trial = checkpoints_of_a_trial(tmp_path / "q", place)
        left_by_spark(trial / "1")
        identity = claim(tmp_path / "q", DEFINITION, shared=place)
        assert trial.parent == checkpoints(tmp_path / "q", identity).parent
        assert not holds_state(tmp_path / "q", identity)
        assert checkpoints_of_a_trial(tmp_path / "q", place) == trial
        assert not trial.exists()
    assert checkpoints_of_a_trial(tmp_path / "other" / "q", shared) != trial


def test_a_query_without_state_gets_one_of_its_own(tmp_path: Path) -> None:
    one, two = claim(tmp_path / "s" / "a", DEFINITION), claim(tmp_path / "s" / "b", DEFINITION)
    assert one.epoch == two.epoch == 1
    assert one.owner != two.owner


def test_an_unreadable_identity_is_named(old: Path) -> None:
    (old / "queries" / "q" / "query.json").write_text("{")
    with pytest.raises(StateError, match=r"query\.json cannot be read"):
        claim(old / "queries" / "q", DEFINITION)


def test_in_a_fleet_each_owner_has_higher_epochs_than_all_before(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    first = [claim(one, DEFINITION, owner="agreed", least_epoch=10**9) for _ in range(3)]
    second = [claim(other, DEFINITION, owner="agreed", least_epoch=2 * 10**9) for _ in range(2)]
    third = claim(one, DEFINITION, owner="agreed", least_epoch=3 * 10**9)
    epochs = [identity.epoch for identity in (*first, *second, third)]
    assert epochs == sorted(set(epochs))
    assert epochs[0] == 10**9
    assert {identity.owner for identity in (*first, *second, third)} == {"agreed"}
    # The folders are told apart all the same.
    assert {identity.place for identity in first} == {third.place}
    assert {identity.place for identity in second} != {third.place}


def test_state_of_its_own_keeps_its_owner_and_is_named_from_then_on(old: Path) -> None:
    identity = claim(old / "queries" / "q", DEFINITION, owner="agreed")
    assert identity.owner == "0123456789abcdef"
    assert identity.place
    assert claim(old / "queries" / "q", DEFINITION).place == identity.place
