"""``python -m suite.whole.gateway CONFIG``: a whole gateway whose engine host at home runs without Spark."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from gateway import start
from gateway.config import load
from gateway.query.supervision import home
from infra.clouds.process import ProcessCloud

_WORKER = (sys.executable, "-m", "suite.whole.host")

if __name__ == "__main__":
    home.ProcessCloud = functools.partial(ProcessCloud, worker_command=_WORKER)  # type: ignore[assignment, attr-defined]
    sys.exit(start.run(load(Path(sys.argv[1])), until_drained=False, report=None))
