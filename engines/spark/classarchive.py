"""Where a machine keeps the archive of the classes that Spark loads: with it a JVM starts with half the work.

Reading and verifying some 20,000 classes is most of what a start of Spark costs; the JVM can map them from a file
instead (application class data sharing). ``engines.prepare`` makes the file. It belongs to one Java and one set of
jars: its name holds both, and the JVM checks them again and does without it when they differ.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pyspark

# What the JVM has to say about an archive that it cannot use, or about single classes, is of no use to anybody.
_QUIET = "-Xlog:cds=off,cds+dynamic=off"


def java_program() -> str | None:
    """Return the Java that Spark will use; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")


def archive() -> Path:
    """Return where the archive for this Java and this Spark is, or would be."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "spillway" / f"classes-{_key()}.jsa"


def use_options() -> str:
    """Return what a JVM must be told to use the archive; empty if there is none."""
    kept = archive()
    return f'"-XX:SharedArchiveFile={kept}" {_QUIET}' if kept.is_file() else ""


def make_options(path: Path) -> str:
    """Return what a JVM must be told to write the classes it has loaded to ``path`` when it ends."""
    return f'"-XX:ArchiveClassesAtExit={path}" {_QUIET}'


@cache
def _key() -> str:
    java = java_program()
    said = subprocess.run([java, "-version"], capture_output=True, timeout=60, check=False).stderr if java else b""
    jars = sorted((Path(pyspark.__path__[0]) / "jars").glob("*.jar"))
    seen = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
    return hashlib.sha256(said + repr(seen).encode()).hexdigest()[:16]
