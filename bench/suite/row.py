"""A row of the bench: its sides, and how each is measured in a process of its own on one CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from suite.turns import Goal, Sample

ROOT = Path(__file__).parents[2]
CPU = "SPILLWAY_BENCH_CPU"
"""The environment variable that tells ``Row.around`` which CPU the sides have."""
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}


def nothing_around() -> AbstractContextManager[Mapping[str, str]]:
    """Return what a row is measured in that needs nothing."""
    return nullcontext({})


@dataclass(frozen=True, slots=True)
class Row:
    """What is measured.

    Attributes:
        name: as ``make bench ONLY=`` takes it.
        title: what is measured, in words.
        sides: Spillway's own code, peers and limits: each measures itself once.
        goals: for the ratios.
        note: what a reader must know: the input, and what the sides do.
        around: what all sides need, as a server: it runs on other CPUs while they are measured, and says where it is in
            environment variables.
        seldom: the sides without a goal that are measured twice only, as they take long.
        turns_most: more turns are not taken: of figures that hardly depend on how fast the machine is.
        side_s: a side that takes longer has failed.
    """

    name: str
    title: str
    sides: Mapping[str, Callable[[], Sample]]
    goals: Sequence[Goal]
    note: str
    around: Callable[[], AbstractContextManager[Mapping[str, str]]] = nothing_around
    seldom: frozenset[str] = frozenset()
    turns_most: int = sys.maxsize
    side_s: float = 300.0


class SideError(RuntimeError):
    """A side failed; the message has the end of its output."""


def side_environment(there: Mapping[str, str]) -> dict[str, str]:
    """Return what the environment of a side has besides this process's; ``there`` is what ``Row.around`` says."""
    return {**there, **_ONE_THREAD, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "bench")))}


def measured(row: Row, side: str, cpu: int, there: Mapping[str, str]) -> Sample:
    """Measure a side in a new process on one CPU; ``there`` is what ``Row.around`` says.

    Raises:
        SideError: it failed, or took too long.
    """
    command = [sys.executable, "-m", "suite.side", row.name, side, str(cpu)]
    env = {**os.environ, **side_environment(there)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=row.side_s, check=True
        )
    except subprocess.CalledProcessError as error:
        raise SideError(f"{row.name}, {side}: exit code {error.returncode}\n{error.stderr[-3000:]}") from None
    except subprocess.TimeoutExpired:
        raise SideError(f"{row.name}, {side}: not done within {row.side_s:g} s") from None
    said = json.loads(done.stdout.splitlines()[-1])
    return Sample(said["figures"], said["answer"])


def lasts_s() -> float:
    """Return for how long a figure is measured; tests, which need no figure, say less."""
    return float(os.environ.get("SPILLWAY_BENCH_S", "1"))


def rate_of(work: Callable[[], int], part: float = 1.0) -> float:
    """Return how much ``work`` does in a second: it is repeated, once without being counted.

    Args:
        work: does a piece of it; returns its size.
        part: of the usual time, where there are many figures.
    """
    work()
    done, begun_s = 0, time.perf_counter()
    while True:
        done += work()
        if (took_s := time.perf_counter() - begun_s) >= part * lasts_s():
            return done / took_s
