"""``spillway bench``: the benchmarks of a checkout, each beside its peers and its limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.common import BAD_INPUT, fail

_ROOT = Path(__file__).parents[2]

Rows = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Rows to measure. Default: all.")]
Turns = Annotated[int, typer.Option(metavar="N", min=1, help="How often; with fewer than 7 no document is written.")]
Compare = Annotated[Path | None, typer.Option(metavar="OLD.json", help="Show what changed since an earlier bench.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures here. Default: build/bench.json.")]


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command(epilog="Example: spillway bench decode keys --compare build/bench.json")(bench)


def bench(rows: Rows = None, turns: Turns = 7, compare: Compare = None, out: Out = None) -> None:
    """Measure the gateway's own code beside peers and limits, side by side (docs/results/bench.md)."""
    if not (_ROOT / "bench" / "suite").is_dir():
        fail("the benchmarks come with the sources, not with the package: clone them and run make bench", BAD_INPUT)
    command = [sys.executable, "-m", "suite", *(rows or []), "--turns", str(turns)]
    command += [] if compare is None else ["--compare", str(compare.absolute())]
    command += [] if out is None else ["--out", str(out.absolute())]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(_ROOT), str(_ROOT / "bench")))}
    raise typer.Exit(subprocess.run(command, cwd=_ROOT, env=env, check=False).returncode)
