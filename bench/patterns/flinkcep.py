"""FlinkCEP beside us: builds ``bench/patterns/flink`` with Maven, and runs its job in one Java process.

The process stays for all jobs, as an engine host does, so that its code is compiled when a later job is measured.
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

PROJECT = Path(__file__).parent / "flink"
_BUILD_S = 900.0
_ENDS_S = 60.0
_LOG_MOST = 4_000  # characters that an error shows
_OPENS = ("java.util", "java.lang", "java.time")


class FlinkCep(AbstractContextManager["FlinkCep"]):
    """The job as it was built; each call of `rises` runs it once.

    Args:
        folder: new; for the build and the log.

    Raises:
        RuntimeError: Maven or Java is missing, or the build failed.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._log = folder / "log"
        classes = f"{folder / 'classes'}:{_built(folder)}"
        opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENS]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["java", *opens, "-cp", classes, "Rises"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def rises(self, trades: Path, matches: Path, rise: float) -> float:
        """Run the job over a file; return the seconds from the first trade that it read until all matches were written.

        Args:
            trades: JSON lines.
            matches: the file for JSON lines with the matches.
            rise: the least price after the rise as a part of the price of the large trade.

        Raises:
            RuntimeError: the process has ended; the message has the end of its log.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{trades}\t{matches}\t{rise}\n")
            self._process.stdin.flush()
            said = self._process.stdout.readline().split()
        except BrokenPipeError:
            said = []
        if said[:1] != ["took_s"]:
            raise RuntimeError(f"FlinkCEP ended over {trades}:\n{self._log.read_text()[-_LOG_MOST:]}")
        return float(said[1])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _built(folder: Path) -> str:
    """Build the job into a folder; return the class path of its libraries."""
    missing = [name for name in ("mvn", "java", "javac") if shutil.which(name) is None]
    if missing:
        raise RuntimeError(f"FlinkCEP cannot be built without {', '.join(missing)}: install Maven and a JDK 17")
    libraries = folder / "libraries"
    goals = ["compile", "dependency:build-classpath", f"-Dmdep.outputFile={libraries}"]
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(PROJECT), f"-Dout={folder}", *goals]
    built = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    if built.returncode:
        raise RuntimeError(f"FlinkCEP was not built:\n{built.stdout[-_LOG_MOST:]}{built.stderr[-_LOG_MOST:]}")
    return libraries.read_text().strip()
