"""Runs policies without blocking the event loop: plans on a thread, trainings in a separate process.

A thread is enough for a plan, which is milliseconds of numpy; meanwhile threads switch more often than usual. One
training runs at a time, at low priority. Its process runs this module as a program: it reads an order from its input,
trains, and writes the models to its output. It lives for one training, so nothing is left of it when the gateway is
killed: its input and output are closed then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from infra.together import end_tasks
from policies.signals import Ask, Event, Fit, Fitted

if TYPE_CHECKING:
    from policies.advice import PolicyAnswer
    from policies.choose import Policies
    from policies.gaussian.forecaster import Trained
    from policies.queueing.loadtable import LoadTable

_LOG = logging.getLogger(__name__)
_WITHIN_S = 300.0
_NICE = 10
_TAIL_CHARS = 500

TURN_S = 0.0005
"""While a plan runs, other threads wait at most this long for the interpreter's lock."""


class FittingError(Exception):
    """A training failed; the message says why."""


class Fitter:
    """Runs ``Fit`` and ``Ask`` commands.

    Args:
        emit: receives ``Fitted`` events; called on the event loop.
        within_s: a training that takes longer is killed.
    """

    def __init__(self, emit: Callable[[Callable[[str, float], Event]], None], within_s: float = _WITHIN_S) -> None:
        self._emit = emit
        self._within_s = within_s
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._planning = ThreadPoolExecutor(1, "planning")

    async def answer(self, ask: Ask, policies: Policies) -> tuple[PolicyAnswer, ...]:
        """Return the policies' answers, computed on a thread; one question at a time."""
        turn_s = sys.getswitchinterval()
        sys.setswitchinterval(TURN_S)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._planning, policies.answer, ask)
        finally:
            sys.setswitchinterval(turn_s)

    def begin(self, command: Fit) -> None:
        """Begin a training; a policy has at most one at a time."""
        task = asyncio.create_task(self._fit(command), name=f"fit the models of {command.query}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Kill trainings that still run."""
        await end_tasks(*self._tasks)
        self._planning.shutdown(wait=False)

    async def _fit(self, command: Fit) -> None:
        models: tuple[Trained | LoadTable, ...] = ()
        trouble = ""
        try:
            async with self._turn:
                models = await trained_elsewhere(command, self._within_s)
        except FittingError as error:
            trouble = str(error)
            _LOG.warning("the models of query %s were not trained: %s", command.query, trouble)
        self._emit(
            lambda event_id, at_s: Fitted(
                event_id=event_id, at_s=at_s, query=command.query, models=models, trouble=trouble
            )
        )


async def trained_elsewhere(command: Fit, within_s: float) -> tuple[Trained | LoadTable, ...]:
    """Return the models of an order, trained in another process.

    Raises:
        FittingError: it failed, or took too long.
    """
    order = await asyncio.to_thread(pickle.dumps, command.training)
    # Found through this package's path, whatever the working directory contains.
    root = Path(__file__).parents[2]
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.fleet.fitting"),
            cwd=root,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise FittingError(f"no process could be started: {error}") from error
    try:
        async with asyncio.timeout(within_s):
            answer, said = await process.communicate(order)
    except TimeoutError:
        raise FittingError(f"it took longer than {within_s:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None:
                process.kill()
                await process.wait()
    if process.returncode != 0:
        raise FittingError(f"exit code {process.returncode}: {said.decode(errors='replace').strip()[-_TAIL_CHARS:]}")
    try:
        models: tuple[Trained | LoadTable, ...] = await asyncio.to_thread(pickle.loads, answer)
    except (pickle.UnpicklingError, EOFError) as error:
        raise FittingError(f"its answer is not a model ({error})") from error
    return models


def fit(command: Fit) -> tuple[Trained | LoadTable, ...]:
    """Return the models and tables of an order, computed in this process."""
    from policies.gaussian.forecaster import train
    from policies.queueing.loadtable import QueueShape, load_table

    return tuple(load_table(each) if isinstance(each, QueueShape) else train(each) for each in command.training)


def main() -> None:
    """Train the order from the input."""
    from policies.signals import Cause

    os.nice(_NICE)
    training = pickle.load(sys.stdin.buffer)  # noqa: S301 -- from our own parent, over a pipe
    models = fit(Fit(query="", training=training, cause=Cause("", "")))
    pickle.dump(models, sys.stdout.buffer)


if __name__ == "__main__":
    main()
