"""State survives a stop and is never ahead of the sink."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.query.known import RefusedError
from engines.streaming import checkpoints
from engines.streaming.checkpoints import CheckpointError, ResumePoint
from tests.e2e.harness import until
from tests.engines.running_totals import USER, ordered, rows, straight
from tests.engines.stream_bench import Bench, Running

pytestmark = pytest.mark.spark


def opened(bench: Bench, folder: Path, *, commits: bool = True) -> Running:
    return bench.open(
        function="user_functions:totals",
        code_path=USER,
        checkpoint_dir=str(folder),
        max_batch_runs=2,
        commits=commits,
    )


def test_a_query_goes_on_from_its_checkpoint_as_if_it_had_never_stopped(bench: Bench, tmp_path: Path) -> None:
    first = opened(bench, tmp_path)
    assert first.stream.progress == ResumePoint(0, 0)
    for seq in range(0, 60, 20):
        first.put_seqs(seq, rows(seq, 20))
    before = first.rows_until(60)
    first.stream.close()
    second = opened(bench, tmp_path)
    assert second.stream.progress.resume_seq in (20, 40, 60)
    resume = second.stream.progress.resume_seq
    for seq in range(resume, 120, 20):
        second.put_seqs(seq, rows(seq, 20))
    after = second.rows_until(120)
    kept = [
        row for answer in first.collected.answers if answer.items[-1].end <= resume for row in answer.rows.to_pylist()
    ]
    assert ordered(kept + after) == ordered(straight(120))
    assert len(before) >= len(kept)


def test_a_start_that_was_killed_while_it_wrote_its_first_offset_is_no_obstacle(bench: Bench, tmp_path: Path) -> None:
    opened(bench, tmp_path).stream.close()
    (last,) = tmp_path.iterdir()
    (last / "offsets").mkdir(exist_ok=True)
    (last / "offsets" / ".0.half-written.tmp").write_text("v1")
    running = opened(bench, tmp_path)
    running.put_seqs(0, rows(0, 30))
    assert ordered(running.rows_until(30)) == ordered(straight(30))


def test_a_query_to_which_nothing_comes_at_first_is_none_the_worse(bench: Bench, tmp_path: Path) -> None:
    idle = opened(bench, tmp_path)
    until(lambda: (tmp_path / "1" / "commits" / "0").exists(), "Spark has committed a micro-batch of nothing")
    assert idle.stream.death == ""
    idle.put_seqs(0, rows(0, 30))
    assert ordered(idle.rows_until(30)) == ordered(straight(30))
    idle.stream.close()


def test_a_start_that_ended_before_anything_came_is_no_obstacle(bench: Bench, tmp_path: Path) -> None:
    idle = opened(bench, tmp_path)
    until(lambda: (tmp_path / "1" / "commits" / "0").exists(), "Spark has committed a micro-batch of nothing")
    idle.stream.close()
    running = opened(bench, tmp_path)
    running.put_seqs(0, rows(0, 30))
    assert ordered(running.rows_until(30)) == ordered(straight(30))


def test_a_batch_the_sink_never_had_runs_again_with_the_same_limits(bench: Bench, tmp_path: Path) -> None:
    first = opened(bench, tmp_path, commits=False)
    first.put_seqs(0, rows(0, 30))
    first.collected.wait(1)
    first.stream.committed(29)
    first.put_seqs(30, rows(30, 10))
    first.put_seqs(40, rows(40, 10))
    first.collected.wait(2)
    (_, uncommitted) = first.limits()
    first.stream.drop_waiting()
    assert "not committed" in first.collected.wait_for_death()
    first.stream.close()

    second = opened(bench, tmp_path)
    assert second.stream.progress == ResumePoint(30, uncommitted[1])
    for seq in range(30, 70, 10):
        second.put_seqs(seq, rows(seq, 10))
    after = second.rows_until(70)
    assert second.limits()[0] == uncommitted
    assert ordered(first.collected.answers[0].rows.to_pylist() + after) == ordered(straight(70))


def test_results_wait_for_no_event_that_has_not_come(bench: Bench, tmp_path: Path) -> None:
    running = opened(bench, tmp_path)
    running.put_seqs(0, rows(0, 11))
    assert ordered(running.rows_until(11)) == ordered(straight(11))


def test_a_run_that_is_not_the_next_is_refused(bench: Bench, tmp_path: Path) -> None:
    running = opened(bench, tmp_path)
    with pytest.raises(ValueError, match="seq 0 is next"):
        running.put_seqs(5, rows(5, 5))


def test_windowed_sql_holds_state_too(bench: Bench, tmp_path: Path) -> None:
    sql = "SELECT window.start AS start, count(*) AS n FROM events GROUP BY window(at, '10 seconds')"
    with pytest.raises(RefusedError, match="watermark"):
        bench.open(sql, schema="at TIMESTAMP", checkpoint_dir=str(tmp_path))


def test_state_without_a_folder_is_refused(bench: Bench) -> None:
    with pytest.raises(RefusedError, match="no checkpoint folder"):
        bench.open(function="user_functions:totals", code_path=USER)


def log(folder: Path, name: str, batches: dict[int, object]) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for batch, at in batches.items():
        (folder / name / str(batch)).write_text(f"v1\n{{}}\n{json.dumps({'at': at})}")


@pytest.mark.parametrize(
    ("offsets", "commits", "expected"),
    [
        ({}, {}, ResumePoint(0, 0)),
        ({0: 10}, {}, ResumePoint(0, 10)),
        ({0: 10}, {0: None}, ResumePoint(10, 10)),
        ({0: 10, 1: 30}, {0: None}, ResumePoint(10, 30)),
        ({8: 90, 9: 100}, {7: None, 8: None, 9: None}, ResumePoint(100, 100)),
    ],
)
def test_progress_is_what_the_logs_say(
    tmp_path: Path, offsets: dict[int, object], commits: dict[int, object], expected: ResumePoint
) -> None:
    log(tmp_path, "offsets", offsets)
    log(tmp_path, "commits", commits)
    assert checkpoints.progress_of(tmp_path) == expected


def test_a_foreign_offset_is_named(tmp_path: Path) -> None:
    log(tmp_path, "offsets", {0: "x"})
    with pytest.raises(CheckpointError, match="offsets/0 is not an offset of this query"):
        checkpoints.progress_of(tmp_path)


def test_each_start_has_a_folder_of_its_own_and_the_last_one_is_kept(tmp_path: Path) -> None:
    first = checkpoints.new_start(tmp_path)
    log(first, "offsets", {0: 10, 1: 20, 2: 30})
    log(first, "commits", {0: None})
    (first / "state").mkdir()
    (first / "state" / "1.zip").write_text("state")
    (tmp_path / "copying-2").mkdir()
    second = checkpoints.new_start(tmp_path)
    assert (second / "state" / "1.zip").read_text() == "state"
    assert sorted(file.name for file in (second / "offsets").iterdir()) == ["0", "1"], "one batch at most is planned"
    assert (first / "offsets" / "2").exists()
    third = checkpoints.new_start(tmp_path)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == [second.name, third.name]
