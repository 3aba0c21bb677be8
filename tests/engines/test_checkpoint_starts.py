"""Folders of starts that Spark filled; everything that a next start may read must be there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from engines.streaming.checkpoints import new_start, progress_of


def run_batch(start: Path, batch: int, *, commit: bool, first_of_start: bool) -> None:
    """Write the files that Spark 4.3 writes for a batch of a query with its own state store (transformWithState)."""
    for log in ("offsets", "commits", "state/0/_metadata/v2", "state/0/_stateSchema/default", "state/0/1"):
        (start / log).mkdir(parents=True, exist_ok=True)
    (start / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"at": {10 * batch + 10}}}\n')
    if first_of_start:
        schema = start / "state/0/_stateSchema/default" / f"{batch}_schema"
        schema.write_text("a schema")
        named = {"stateStoreInfo": [{"stateSchemaFilePaths": [schema.as_uri().replace("file://", "file:")]}]}
        (start / "state/0/_metadata/v2" / str(batch)).write_text(f"v2\n{json.dumps(named)}")
    (start / "state/0/1" / f"{batch}.zip").write_bytes(b"state")
    if commit:
        (start / "commits" / str(batch)).write_text("v1\n{}\n")


def schemas_read_next(start: Path) -> list[Path]:
    """The schema files that Spark opens when it continues in ``start``: those of the metadata at the last commit."""
    last = max(int(file.name) for file in (start / "commits").iterdir())
    log = start / "state/0/_metadata/v2"
    batch = max(int(file.name) for file in log.iterdir() if int(file.name) <= last)
    named = json.loads((log / str(batch)).read_text().splitlines()[1])
    return [Path(path.removeprefix("file:")) for path in named["stateStoreInfo"][0]["stateSchemaFilePaths"]]


def test_starts_that_are_killed_before_they_commit_a_batch_take_no_schema_away(tmp_path: Path) -> None:
    base = tmp_path / "checkpoints"
    first = new_start(base)
    run_batch(first, 0, commit=True, first_of_start=True)
    run_batch(first, 1, commit=True, first_of_start=False)
    for early in range(4):
        start = new_start(base)
        if early % 2:
            run_batch(start, 2, commit=False, first_of_start=True)
        assert all(path.exists() for path in schemas_read_next(start))
        assert progress_of(start).resume_seq == 20
    assert sorted(int(folder.name) for folder in base.iterdir()) == [4, 5]


def test_schemas_that_lie_in_an_earlier_start_come_along(tmp_path: Path) -> None:
    base = tmp_path / "checkpoints"
    first = new_start(base)
    run_batch(first, 0, commit=True, first_of_start=True)
    second = base / "2"
    shutil.copytree(first, second, ignore=shutil.ignore_patterns("_stateSchema"))
    assert [path.parent.parent.parent.parent.parent for path in schemas_read_next(second)] == [first]
    third = new_start(base)
    assert [path.read_text() for path in schemas_read_next(third)] == ["a schema"]
    new_start(base)
    assert all(path.is_relative_to(third) for path in schemas_read_next(third))


def test_a_start_is_deleted_once_a_later_one_has_committed_schemas_of_its_own(tmp_path: Path) -> None:
    base = tmp_path / "checkpoints"
    run_batch(new_start(base), 0, commit=True, first_of_start=True)
    for batch in range(1, 4):
        start = new_start(base)
        run_batch(start, batch, commit=True, first_of_start=True)
    last = new_start(base)
    assert all(path.is_relative_to(last) and path.exists() for path in schemas_read_next(last))
    assert sorted(folder.name for folder in base.iterdir()) == ["4", "5"]
