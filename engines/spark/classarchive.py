"""The archive of the classes that Spark loads: with it a JVM starts with half the work.

Most of the work of a Spark start is to read and verify some 20,000 classes. The JVM can map them from a file instead
(application class data sharing). ``engines.prepare`` writes the file. It is valid for one Java and one set of jars: its
name contains both, and the JVM checks them again and ignores the file if they differ.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pyspark

# The JVM's warnings about an archive that it cannot use, or about single classes, do not help anybody.
_QUIET = "-Xlog:cds=off,cds+dynamic=off"


def java_program() -> str | None:
    """Return the Java that Spark will use; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")


def archive() -> Path:
    """Return the path of the archive for this Java and this Spark; it may not exist."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "spillway" / f"classes-{_key()}.jsa"


def use_options() -> str:
    """Return the JVM options that use the archive; empty if there is none."""
    kept = archive()
    return f'"-XX:SharedArchiveFile={kept}" {_QUIET}' if kept.is_file() else ""


def make_options(path: Path) -> str:
    """Return the JVM options that write the loaded classes to ``path`` when the JVM ends."""
    return f'"-XX:ArchiveClassesAtExit={path}" {_QUIET}'


@cache
def _key() -> str:
    java = java_program()
    said = subprocess.run([java, "-version"], capture_output=True, timeout=60, check=False).stderr if java else b""
    jars = sorted((Path(pyspark.__path__[0]) / "jars").glob("*.jar"))
    seen = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
    return hashlib.sha256(said + repr(seen).encode()).hexdigest()[:16]
