"""What a gateway elsewhere gets of a run log: all that committed results depend on, and nothing else."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.query.flow.runlog import LogHead, RunLog, RunRecord
from gateway.query.handover import RunLogHandover, StoredLog, stored_log, taken_over
from gateway.sources.marks import KafkaMark
from infra.statefiles import StateError

MARK = KafkaMark("broker:9092", "cluster", {"in": "id"})
HEAD = LogHead("me", 1000.0, 40, Position(50, offsets={"in/0": 50}), ("t", 3), 5, MARK)


def run(first: int, last: int, start: int, end: int, *, shed: int = 0, shed_before: int = 0) -> RunRecord:
    offsets = [{"in/0": place} for place in (start, end)]
    start_at, end_at = (Position(place, offsets=offset) for place, offset in zip((start, end), offsets, strict=True))
    return RunRecord(first, last, start_at, end_at, 2000.0 + first, False, ("t", last), shed, shed_before)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[RunRecord], list[bool]]:
    """Runs after ``HEAD`` and which are committed; between two of them there may be records without an event."""
    runs: list[RunRecord] = []
    seq, record = HEAD.next_seq, HEAD.position.record
    for events, shed, skipped in draw(
        st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 2)), max_size=12)
    ):
        start, end = record + skipped, record + skipped + events + shed
        runs.append(run(seq, seq + events - 1, start, end, shed=shed, shed_before=skipped))
        seq, record = seq + events, end
    return runs, draw(st.lists(st.booleans(), min_size=len(runs), max_size=len(runs)))


@given(logs())
def test_only_what_nobody_has_seen_is_missing(found: tuple[list[RunRecord], list[bool]]) -> None:
    runs, done = found
    committed = IntervalSet([(0, HEAD.next_seq - 1)])
    for each, is_done in zip(runs, done, strict=True):
        if is_done:
            committed.add(each.first_seq, each.last_seq)
    seen = max((i + 1 for i, is_done in enumerate(done) if is_done), default=0)
    stored = stored_log("here", HEAD, runs, committed)
    assert stored.head is not None
    head, kept = stored.head, stored.runs
    # The holes are cut again exactly as they were; what is committed is only counted.
    holes = [each for each, is_done in zip(runs[:seen], done, strict=False) if not is_done]
    assert [each for each in kept if not committed.covers(each.first_seq, each.last_seq)] == holes
    assert all(one.last_seq < other.first_seq for one, other in pairwise(kept))
    # It continues with the first event after the last one that was committed.
    last_seq, last_at = (kept[-1].last_seq, kept[-1].end) if kept else (head.next_seq - 1, head.position)
    assert last_seq == (runs[seen - 1].last_seq if seen else HEAD.next_seq - 1)
    assert last_at == (runs[seen - 1].end if seen else HEAD.position)
    assert (kept[-1].newest if kept else head.newest) == (runs[seen - 1].newest if seen else HEAD.newest)
    assert head.source == MARK
    assert head.started_wall_s == HEAD.started_wall_s
    # Events that were shed stay counted.
    expected = HEAD.shed + sum(each.shed + each.shed_before for each in runs[:seen])
    assert head.shed + sum(each.shed + each.shed_before for each in kept) == expected
    # As small as the number of holes.
    assert len(kept) <= 2 * len(holes)


def test_what_a_gateway_elsewhere_opens_is_the_same_log(tmp_path: Path) -> None:
    runs = [run(40, 49, 50, 60), run(50, 59, 60, 70), run(60, 69, 70, 80), run(70, 79, 80, 90)]
    committed = IntervalSet([(0, 49), (60, 69)])
    (tmp_path / "a").mkdir()
    there = RunLogHandover("q", "a")
    there.found(b"null")
    log = there.open_log(tmp_path / "a/runs.log", HEAD, IntervalSet())
    log.append(runs)
    stored = there.after(committed)
    here = RunLogHandover("q", "b")
    here.found(stored)
    fresh = LogHead("me", 5000.0)
    continued = here.open_log(tmp_path / "b/runs.log", fresh, committed)
    assert (continued.next_seq, continued.position) == (70, runs[2].end)
    assert continued.head.next_seq == 50
    assert continued.runs == runs[1:3]
    continued.append([run(70, 74, 80, 85)])
    continued.close()
    # From its first commit on the log here is the one that counts.
    after = here.after(IntervalSet([(0, 74)]))
    assert msgspec.json.decode(after, type=StoredLog).place == "b"
    there.found(after)
    log.close()
    back = there.open_log(tmp_path / "a/runs.log", fresh, IntervalSet([(0, 74)]))
    assert (back.next_seq, back.position, back.runs) == (75, run(70, 74, 80, 85).end, [])
    back.close()


def test_after_a_restart_in_the_same_place_all_of_its_runs_are_there(tmp_path: Path) -> None:
    path, runs = tmp_path / "runs.log", [run(40, 49, 50, 60), run(50, 59, 60, 70)]
    first = RunLogHandover("q", "a")
    first.found(b"null")
    log = first.open_log(path, HEAD, IntervalSet())
    log.append(runs)
    stored = first.after(IntervalSet([(0, 49)]))
    log.close()
    again = RunLogHandover("q", "a")
    again.found(stored)
    log = again.open_log(path, LogHead("me", 5000.0), IntervalSet([(0, 49)]))
    assert log.runs == runs
    log.close()


def test_a_log_that_was_lost_here_is_made_again(tmp_path: Path) -> None:
    handover = RunLogHandover("q", "a")
    handover.found(msgspec.json.encode(stored_log("a", HEAD, [], IntervalSet([(0, 39)]))))
    log = handover.open_log(tmp_path / "runs.log", LogHead("me", 5000.0), IntervalSet([(0, 39)]))
    assert (log.next_seq, log.position) == (40, HEAD.position)
    log.close()


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        (b"null", "written by an earlier version, or without a fleet"),
        (
            msgspec.json.encode(StoredLog("elsewhere")),
            "can only be continued with the state_dir of another gateway of the fleet",
        ),
    ],
)
def test_it_is_not_continued_where_it_cannot_be(tmp_path: Path, stored: bytes, says: str) -> None:
    handover = RunLogHandover("q", "here")
    handover.found(stored)
    with pytest.raises(StateError, match=says):
        handover.open_log(tmp_path / "runs.log", LogHead("me", 5000.0), IntervalSet([(0, 9)]))
    assert not (tmp_path / "runs.log").exists()


def test_what_is_no_handover_is_said() -> None:
    with pytest.raises(StateError, match="cannot be read"):
        RunLogHandover("q", "here").found(b'{"place": 7}')


def test_a_query_with_state_hands_nothing_over(tmp_path: Path) -> None:
    handover = RunLogHandover("q", "a", stays="it counts")
    handover.found(b"null")
    log = handover.open_log(tmp_path / "runs.log", HEAD, IntervalSet())
    assert msgspec.json.decode(handover.after(IntervalSet([(0, 39)])), type=StoredLog) == StoredLog("a")
    log.close()


def test_an_old_log_without_a_handover_counts_if_it_holds_all_that_is_committed(tmp_path: Path) -> None:
    path = tmp_path / "runs.log"
    RunLog(path, HEAD).close()
    handover = RunLogHandover("q", "a")
    handover.found(b"null")
    handover.open_log(path, HEAD, IntervalSet([(0, 39)])).close()
    with pytest.raises(StateError, match="Start it once with the state_dir"):
        handover.open_log(path, HEAD, IntervalSet([(0, 40)]))


def test_replayed_letters_are_not_counted_where_they_are_not() -> None:
    replayed = Position(50, replayed=3)
    plain = RunRecord(40, 49, replayed, Position(60, replayed=3), 0.0)
    letters = RunRecord(50, 52, Position(60, replayed=3), Position(60, replayed=6), 0.0)
    head, runs = taken_over(
        StoredLog("a", msgspec.structs.replace(HEAD, position=replayed), [plain, letters]), owner="me"
    )
    assert head.position == Position(50)
    assert (runs[0].start, runs[0].end) == (Position(50), Position(60))
    assert runs[1] == letters
