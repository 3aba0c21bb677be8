"""``python -m suite.side ROW SIDE CPU`` measures one side once and prints it as JSON."""

from __future__ import annotations

import json
import os
import sys

import pyarrow as pa

from infra.loading import collect_seldom
from suite.rows import ROWS


def main(row: str, side: str, cpu: int) -> None:
    """Measure, on this CPU only."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu})
    pa.set_cpu_count(1)
    collect_seldom()  # as the gateway, and its peers too
    sample = ROWS[row]().sides[side]()
    print(json.dumps({"figures": sample.figures, "answer": sample.answer}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
