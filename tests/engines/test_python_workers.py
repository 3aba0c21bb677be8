"""How an engine host's Spark treats its Python workers, observed in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from engines.spark.workerpython import quick_python

SCRIPT = """
import gc, json, sys
from pathlib import Path
from engines.spark.scratch import remove_own
from engines.spark.session import build_session, stop_session

def frozen(_):
    return gc.get_freeze_count(), "pandas" in sys.modules

session = build_session("local[1]", Path(sys.argv[1]), 1)
try:
    sockets = Path(session.conf.get("spark.python.unix.domain.socket.dir"))
    context = session.sparkContext
    found = [context.parallelize([0], 1).map(frozen).collect()[0] for _ in range(3)]
    used = any(each.is_socket() for each in sockets.iterdir())
    private = sockets.stat().st_mode & 0o077 == 0
    path = context.parallelize([0], 1).map(lambda _: sys.path).collect()[0]
    print(json.dumps({"found": found, "sockets": used, "private": private, "path": path}))
finally:
    stop_session(session)
    remove_own()
"""


@pytest.mark.spark
def test_workers_keep_what_they_imported_and_talk_over_private_sockets(tmp_path: Path) -> None:
    user = str(tmp_path / "the user's")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment["PYTHONPATH"] = f"{environment['PYTHONPATH']}:{user}" if environment.get("PYTHONPATH") else user
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "work")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    for frozen, imported in seen["found"]:
        assert imported, "a worker has from its first task on what Python functions need"
        assert frozen > 10_000, "and never looks at it again"
    assert not [entry for entry in seen["path"] if entry.startswith(f"{pyspark.__path__[0]}/")], "it compiles PySpark"
    assert user in seen["path"]
    assert seen["sockets"]
    assert seen["private"]


def test_another_python_that_the_user_chose_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/mine/python")
    with quick_python(tmp_path):
        assert os.environ["PYSPARK_PYTHON"] == "/opt/mine/python"
    assert list(tmp_path.iterdir()) == []


def test_where_no_program_can_be_started_spark_starts_python_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    (tmp_path / "python").mkdir()
    with quick_python(tmp_path):
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert f"{tmp_path / 'python'} cannot be started" in caplog.text
