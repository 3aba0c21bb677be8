"""Models trained in another process equal those trained here, and a failed training is reported."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from gateway.fleet.fitting import Fitter, FittingError, fit, trained_elsewhere
from policies.gaussian.forecaster import Forecaster, Trained, TrainingSet
from policies.queueing.degree import BufferGoal
from policies.queueing.distributions import Empirical, Exponential
from policies.queueing.loadtable import QueueShape, load_table
from policies.signals import Ask, Cause, Event, Fit, Fitted
from tests.support.waiting import until

if TYPE_CHECKING:
    from policies.choose import Policies


def order(points: int = 40) -> Fit:
    forecaster = Forecaster(100)
    rng = np.random.default_rng(5)
    for at in range(points):
        forecaster.observe(1e9 + 60.0 * at, 100.0 + 50 * np.sin(at / 5) + rng.normal(0, 5))
    return Fit(query="q", training=(forecaster.training_set(),), cause=Cause("e1", "learn"))


class Heard:
    def __init__(self) -> None:
        self.events: list[Fitted] = []
        self.heard = asyncio.Event()

    def __call__(self, make_event: Callable[[str, float], Event]) -> None:
        event = make_event("e1", 0.0)
        assert isinstance(event, Fitted)
        self.events.append(event)
        self.heard.set()


async def test_what_is_trained_elsewhere_is_what_would_be_trained_here() -> None:
    command = order()
    (here,) = fit(command)
    (there,) = await trained_elsewhere(command, 240.0)
    assert isinstance(here, Trained)
    assert isinstance(there, Trained)
    assert isinstance(command.training[0], TrainingSet)
    np.testing.assert_allclose(there.fitted.kernel.theta, here.fitted.kernel.theta, rtol=1e-6)
    x = command.training[0].x
    for got, expected in zip(there.posterior.predict(x), here.posterior.predict(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-8)


async def test_a_queue_is_simulated_elsewhere_beside_a_training() -> None:
    shape = QueueShape(Exponential(1.0), Empirical((0.5, 1.5)), 5, BufferGoal(40, 0.95), 1.0, 3)
    command = Fit(query="q", training=(*order().training, shape), cause=Cause("e1", "learn"))
    trained, table = await trained_elsewhere(command, 240.0)
    assert isinstance(trained, Trained)
    assert table == load_table(shape)


async def test_the_loop_goes_on_meanwhile() -> None:
    """Steps of the event loop while a training runs in another process: they are counted, not timed."""
    heard = Heard()
    fitter = Fitter(heard)
    fitter.begin(order())
    steps = 0
    while not heard.heard.is_set():
        await asyncio.sleep(0.005)
        steps += 1
    assert steps > 10
    (event,) = heard.events
    assert (event.query, len(event.models), event.trouble) == ("q", 1, "")
    await fitter.close()


class Pondering:
    """Policies that answer only once the event loop has made a step."""

    def __init__(self) -> None:
        self.began, self.goes_on = threading.Event(), threading.Event()

    def answer(self, ask: Ask) -> tuple[str, ...]:
        assert ask.turn == 7
        self.began.set()
        assert self.goes_on.wait(60.0)
        return ("answered",)


async def test_the_loop_goes_on_while_a_policy_thinks() -> None:
    policies, fitter, turn_s = Pondering(), Fitter(Heard()), sys.getswitchinterval()
    ask = Ask(turn=7, questions=(), cause=Cause("e1", "a slot is over"))
    asked = asyncio.create_task(fitter.answer(ask, cast("Policies", policies)))
    await until(policies.began.is_set)
    assert sys.getswitchinterval() < turn_s
    policies.goes_on.set()
    answers: tuple[object, ...] = await asyncio.wait_for(asked, 60)
    assert answers == ("answered",)
    assert sys.getswitchinterval() == turn_s
    await fitter.close()


async def test_a_training_that_fails_says_why(caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard()
    fitter = Fitter(heard)
    fitter.begin(order(points=4))
    async with asyncio.timeout(240):
        await heard.heard.wait()
    (event,) = heard.events
    assert event.models == ()
    assert "4 observations are too few to train with" in event.trouble
    assert "were not trained" in caplog.text


async def test_a_training_that_takes_too_long_is_broken_off() -> None:
    with pytest.raises(FittingError, match=r"longer than 0\.01 s"):
        await trained_elsewhere(order(), 0.01)


async def test_close_ends_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[asyncio.subprocess.Process] = []
    begin = asyncio.create_subprocess_exec

    async def watched(*args: str, **options: object) -> asyncio.subprocess.Process:
        processes.append(await begin(*args, **options))  # type: ignore[arg-type]
        return processes[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    heard = Heard()
    fitter = Fitter(heard)
    fitter.begin(order())
    await until(lambda: processes)
    await fitter.close()
    assert processes[0].returncode is not None
    assert heard.events == []
