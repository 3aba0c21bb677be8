"""The Python that Spark starts its Python processes with: the host's own, without Spark's archives in its module path.

Spark puts an archive of PySpark's sources and one of its jars first in the module path of each Python process that it
starts. Each process then compiles PySpark, and reads the directories of both archives several times: 0.7 of the 1.0 CPU
seconds of its start. The host's Python has the same PySpark installed, and compiled. Spark has no setting for this, so
the program that it starts is a script that removes these entries.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

_NAME = "PYSPARK_PYTHON"
_SCRIPT = """\
#!/bin/sh
# Starts Python without the entries of PYTHONPATH that are inside the installed PySpark; Spark adds them.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in {pyspark}/*) ;; *) kept=$kept${{kept:+:}}$entry ;; esac
done
PYTHONPATH=$kept exec {python} "$@"
"""


@contextmanager
def quick_python(folder: Path) -> Iterator[None]:
    """Let a Spark that is started meanwhile, and that runs on this machine alone, start Python without its archives.

    Does nothing if the user has chosen another Python for Spark, which may have no PySpark, or if no program can be
    started from the file system of ``folder``.

    Args:
        folder: exists as long as Spark runs; the script is written to it.
    """
    chosen = os.environ.setdefault(_NAME, sys.executable)
    if chosen != sys.executable or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        yield
        return
    script = folder / "python"
    script.write_text(_SCRIPT.format(pyspark=shlex.quote(pyspark.__path__[0]), python=shlex.quote(chosen)))
    script.chmod(0o700)
    os.environ[_NAME] = str(script)
    try:
        yield
    finally:
        os.environ[_NAME] = chosen
