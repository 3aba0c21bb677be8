"""A whole gateway with engine hosts without Spark: python far_gateway.py CONFIG REPORT; ends once drained."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from gateway import start
from gateway.config import load
from gateway.fleet import clouds
from gateway.query.supervision import home
from infra.clouds.process import ProcessCloud

WORKER = (sys.executable, str(Path(__file__).with_name("echo_worker.py")))

if __name__ == "__main__":
    without_spark = functools.partial(ProcessCloud, worker_command=WORKER)
    for module in (clouds, home):
        setattr(module, "ProcessCloud", without_spark)  # noqa: B010 -- a class by name, as the modules know it
    sys.exit(start.run(load(Path(sys.argv[1])), until_drained=True, report=Path(sys.argv[2])))
