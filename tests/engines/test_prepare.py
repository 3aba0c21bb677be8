"""A JVM starts from the archive that ``spillway prepare`` made, and without it if the archive is unusable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SPILLWAY = [sys.executable, "-m", "gateway"]
STARTED = """
import sys
from pathlib import Path
from engines.spark.session import build_session, stop_session
session = build_session("local[1]", Path(sys.argv[1]), 1)
jvm = session.sparkContext._gateway.proc.pid
print(session.range(3).count(), Path(f"/proc/{jvm}/maps").read_text().count(sys.argv[2]))
stop_session(session)
"""


def run(*command: str, cache: Path) -> str:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def is_mapped(archive: Path, workdir: Path, cache: Path) -> bool:
    """Start Spark as an engine host does; return whether its JVM has mapped the archive."""
    rows, maps = run(sys.executable, "-c", STARTED, str(workdir), archive.name, cache=cache).split()
    assert rows == "3"
    return int(maps) > 0


@pytest.mark.timeout(1200)
def test_spark_starts_from_what_was_prepared(tmp_path: Path) -> None:
    cache = tmp_path / "a cache"
    said = run(*SPILLWAY, "prepare", cache=cache)
    (archive,) = (cache / "spillway").iterdir()
    assert str(archive) in said
    assert is_mapped(archive, tmp_path / "work", cache)
    changed = archive.stat().st_mtime_ns
    run(*SPILLWAY, "prepare", cache=cache)
    assert archive.stat().st_mtime_ns == changed, "it was made again"
    archive.write_bytes(b"no archive at all")
    assert not is_mapped(archive, tmp_path / "work", cache)
