"""A real database for tests: Derby, which comes with Spark, as files of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyspark

from engines.spark.classarchive import java_program


class Derby:
    """A database; each call is a process of its own, since only one process may use the files at a time.

    Args:
        folder: for the files; must not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"jdbc:derby:{folder}"

    def run(self, statements: Iterable[str]) -> None:
        """Create the database if there is none, and run statements in it."""
        script = "".join(f"{each};\n" for each in (f"connect '{self.url};create=true'", *statements, "exit"))
        jars = ":".join(map(str, (Path(pyspark.__file__).parent / "jars").glob("derby*.jar")))
        java = java_program()
        assert java
        ij = [java, "-cp", jars, f"-Dderby.system.home={self._folder.parent}", "org.apache.derby.tools.ij"]
        said = subprocess.run(ij, input=script, capture_output=True, text=True, check=True, timeout=120).stdout
        assert "ERROR" not in said, said
