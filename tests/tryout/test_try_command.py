"""``spillway try`` as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import main
from tests.tryout.try_config import config_with, put, query

HTTP = {"type": "http", "listen": "127.0.0.1:0"}


@pytest.mark.spark
def test_the_first_results_are_shown_and_nothing_is_left_behind(tmp_path: Path) -> None:
    put(tmp_path / "in.jsonl", '{"id": "a", "n": 20}', '{"id": "b", "n": 1.5}')
    config_with(tmp_path, good=query(), web=query(source=HTTP, sink={"type": "file", "path": "web"}))
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "try", "config.yaml"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(scratch), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, "one query has nothing to read"
    assert "good: 2 records of " in done.stdout
    assert "1 dead letter, 1 row" in done.stdout
    assert "│ a  │ 40    │" in done.stdout
    assert "query web: source: POST to 127.0.0.1:0/events: nothing can be read there in advance" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == before
    assert not [path.name for path in scratch.glob("spillway-try-*")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["wrods"], 'has no query "wrods"; its queries are words'),
        (["--sample", "given.jsonl"], "--sample needs the query whose source it stands for"),
        (["words", "--rows", "0"], "--rows"),
        (["words", "--sample", "a", "--sample", "b"], "there is already a file"),
    ],
)
def test_wrong_arguments_end_with_2(tmp_path: Path, words: list[str], says: str) -> None:
    put(tmp_path / "in.jsonl")
    config_with(tmp_path, words=query())
    result = CliRunner().invoke(main, ["try", str(tmp_path / "config.yaml"), *words])
    assert (result.exit_code, says in " ".join(result.output.split())) == (2, True), result.output
