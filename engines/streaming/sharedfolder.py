"""Checks that all executors of a cluster share the folder of a query's checkpoints with the driver.

Spark does not check it. An executor without the folder writes state to its own disk, where no other executor finds it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from engines.streaming import checkpoints

_WITHIN_S = 60.0
_ROUNDS = 5
_HOSTS_SHOWN = 5

_Look = Callable[[int], tuple[str, int, str, str]]
"""Runs on executors; returns the fields of an `_Answer`."""


class NotSharedError(Exception):
    """An executor does not share the folder; the message names its machine and says what to do."""


class _Answer(NamedTuple):
    """What an executor says: its machine, its process, the folder that it wrote, and why it could not."""

    host: str
    process: int
    wrote: str
    trouble: str


class SharedFolder:
    """The folder of one query's checkpoints on a cluster.

    Args:
        session: its executors are asked.
        folder: of the checkpoints.
        within_s: how long all executors together may take to answer.
    """

    def __init__(self, session: SparkSession, folder: Path, within_s: float = _WITHIN_S) -> None:
        self._context = session.sparkContext
        self._folder = folder
        self._within_s = within_s
        self._known: frozenset[str] = frozenset()

    def check(self) -> None:
        """Let executors read and write in the folder, if there are others than at the last check. Blocks.

        An executor that is busy with other tasks all the time may not be asked.

        Raises:
            NotSharedError: an executor or this machine cannot, or not all executors answer in time.
            CheckpointError: the folder cannot be created.
        """
        processes = self._processes()
        if processes <= self._known:
            return
        try:
            self._ask(len(processes) - 1)
        except OSError as error:
            raise NotSharedError(f"this machine cannot write to {self._folder}: {error}") from error
        self._known = processes

    def _processes(self) -> frozenset[str]:
        """Return the addresses of the driver and of each executor."""
        status = self._context._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001 - PySpark has no public way to ask
        return frozenset(str(status.keySet().mkString(" ")).split())

    def _ask(self, executors: int) -> None:
        checkpoints.make(self._folder)
        place, word = checkpoints.temporary(self._folder, "shared"), uuid.uuid4().hex
        place.mkdir()
        try:
            (place / "word").write_text(word)
            answers = self._answers(_look(str(place), word), executors)
            troubles = {answer.host: trouble for answer in answers if (trouble := _trouble(answer, word))}
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if not troubles and place.exists():
            troubles = {answer.host: "this machine may not remove what they write there" for answer in answers}
        if troubles:
            raise NotSharedError(self._why(troubles))

    def _answers(self, look: _Look, executors: int) -> list[_Answer]:
        group = f"shared-{uuid.uuid4().hex}"
        asking = ThreadPoolExecutor(1, thread_name_prefix="shared")  # a thread has a job group of its own
        try:
            return asking.submit(self._ask_all, look, executors, group).result(self._within_s)
        except TimeoutError as error:
            self._context.cancelJobGroup(group)
            raise NotSharedError(
                f"not all executors of {self._context.master} said within {self._within_s:g} s whether they share "
                f"{self._folder}: its storage may hang there, or the executors are busy or gone"
            ) from error
        finally:
            asking.shutdown(wait=False)

    def _ask_all(self, look: _Look, executors: int, group: str) -> list[_Answer]:
        self._context.setJobGroup(group, f"who shares {self._folder}", interruptOnCancel=True)
        tasks = self._context.defaultParallelism  # as many as run at a time
        answers: list[_Answer] = []
        for _ in range(_ROUNDS):
            said = self._context.parallelize(range(tasks), tasks).map(look).collect()
            answers += [_Answer(*each) for each in said]
            if len({(answer.host, answer.process) for answer in answers}) >= executors:
                break
        return answers

    def _why(self, troubles: dict[str, str]) -> str:
        shown = sorted(troubles.items())[:_HOSTS_SHOWN]
        said = "; ".join(f"on {host}: {trouble}" for host, trouble in shown)
        more = f"; and {len(troubles) - len(shown)} more machines" if len(troubles) > len(shown) else ""
        return (
            f"executors of {self._context.master} do not share {self._folder} with this machine ({said}{more}): mount "
            "the same storage at the same path on every machine, writable for the users of the gateway and of Spark, "
            "or set private.spark.checkpoints to such a folder"
        )


def _look(place: str, word: str) -> _Look:
    # A function inside a function is sent as a whole: executors do not have this module.
    def look(_: int) -> tuple[str, int, str, str]:
        import os
        import socket
        import uuid
        from pathlib import Path

        host, process = socket.gethostname(), os.getppid()
        try:
            if Path(place, "word").read_text() != word:
                return host, process, "", "another file is there"
            mine = Path(place, uuid.uuid4().hex)
            mine.mkdir()
            (mine / "word").write_text(word)
        except OSError as error:
            return host, process, "", str(error)
        return host, process, str(mine), ""

    return look


def _trouble(answer: _Answer, word: str) -> str:
    if answer.trouble:
        return answer.trouble
    try:
        read = Path(answer.wrote, "word").read_text()
    except OSError as error:
        return f"this machine does not see what they write: {error}"
    return "" if read == word else "this machine sees something else than they write"
