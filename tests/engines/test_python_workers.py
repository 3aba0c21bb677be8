"""How an engine host's Spark treats its Python workers, observed in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    print(json.dumps({"found": found, "sockets": used, "private": private}))
finally:
    stop_session(session)
    remove_own()
"""


@pytest.mark.spark
def test_workers_keep_what_they_imported_and_talk_over_private_sockets(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    for frozen, imported in seen["found"]:
        assert imported, "a worker has from its first task on what Python functions need"
        assert frozen > 10_000, "and never looks at it again"
    assert seen["sockets"]
    assert seen["private"]
