"""``python -m suite.whole.gateway CONFIG``: a whole gateway whose engine hosts run without Spark."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from gateway import start
from gateway.config import load
from gateway.fleet import clouds
from gateway.query.supervision import home
from infra.clouds.process import ProcessCloud

_WORKER = (sys.executable, "-m", "suite.whole.host")

if __name__ == "__main__":
    for module in (home, clouds):
        module.ProcessCloud = functools.partial(ProcessCloud, worker_command=_WORKER)  # type: ignore[attr-defined]
    sys.exit(start.run(load(Path(sys.argv[1])), until_drained=False, report=None))
