"""The Python that Spark starts its Python processes with: the host's own, without Spark's archives in its module path.

Spark puts an archive of PySpark's sources and one of its jars first in the module path of each Python process that it
starts. Each process then compiles PySpark, and reads the directories of both archives several times: 0.7 of the 1.0 CPU
seconds of its start. The host's Python has the same PySpark installed, and compiled. Spark has no setting for this, so
the program that it starts is a script that removes these entries.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

_LOG = logging.getLogger("spillway.host")
_NAME = "PYSPARK_PYTHON"
_TRY_S = 60.0
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

    Does nothing if the user has chosen another Python for Spark, which may have no PySpark.

    Args:
        folder: exists as long as Spark runs; the script is written to it.
    """
    chosen = os.environ.setdefault(_NAME, sys.executable)
    if chosen == sys.executable:
        os.environ[_NAME] = _script_in(folder) or chosen
    try:
        yield
    finally:
        os.environ[_NAME] = chosen


def _script_in(folder: Path) -> str:
    """Write the script; return its path, or nothing if it cannot be started."""
    script = folder / "python"
    try:
        script.write_text(_SCRIPT.format(pyspark=shlex.quote(pyspark.__path__[0]), python=shlex.quote(sys.executable)))
        script.chmod(0o700)
        subprocess.run([script, "-c", ""], capture_output=True, timeout=_TRY_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:  # its file system may be mounted with noexec
        _LOG.warning("Spark's Python processes will start slowly: %s cannot be started: %s", script, error)
        return ""
    return str(script)
