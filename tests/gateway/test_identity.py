from __future__ import annotations

from pathlib import Path

import pytest

from gateway.deadletters import DeadLetterFile
from gateway.identity import claim
from gateway.position import Position
from gateway.runlog import LogHead, RunLog
from gateway.statefiles import StateError, owned

# A state_dir as the first version wrote it, to the letter.
OLD = {
    "format": "1\n",
    "queries/q/query.json": '{"owner":"0123456789abcdef","code_hash":"abc","epoch":3}',
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
        assert claim("q", folder, "abc").epoch == 4
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


def test_a_changed_query_is_refused_with_what_to_do_and_its_state_stays(old: Path) -> None:
    folder = old / "queries" / "q"
    with pytest.raises(StateError, match=r"query q: its SQL, schema or code changed.*Drain it .*or begin anew: remove"):
        claim("q", folder, "other")
    assert {name: (old / name).read_text() for name in OLD} == OLD
    assert claim("q", folder, "abc").owner == "0123456789abcdef"


def test_a_query_without_state_gets_one_of_its_own(tmp_path: Path) -> None:
    one, two = claim("a", tmp_path / "s" / "a", "abc"), claim("b", tmp_path / "s" / "b", "abc")
    assert one.epoch == two.epoch == 1
    assert one.owner != two.owner


def test_an_unreadable_identity_is_named(old: Path) -> None:
    (old / "queries" / "q" / "query.json").write_text("{")
    with pytest.raises(StateError, match=r"query\.json cannot be read"):
        claim("q", old / "queries" / "q", "abc")
