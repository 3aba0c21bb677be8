"""What ``spillway simulate`` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gateway.config import Config
from gateway.config.words.units import duration_s, rate_per_s
from gateway.simulate import contest, plan
from gateway.simulate.calibration import Calibration, read_calibration
from gateway.simulate.options import WorldOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command's options, as they were given."""

    served: str | None
    parameters: Path | None
    trace: Path | None
    load_for: str
    stays_home: Sequence[str]
    seed: int
    policies: Sequence[str]
    report: Path | None
    html: Path | None


def world_of(config: Config, asked: Asked) -> WorldOptions:
    """Return the world of a config.

    Raises:
        UnitError: a rate or a duration cannot be read.
        TraceError: see ``plan``.
        CalibrationError: see ``read_calibration``.
    """
    recorded = None if asked.trace is None else plan.read_trace(asked.trace)
    measured = Calibration() if asked.parameters is None else read_calibration(asked.parameters)
    return plan.plan(
        config,
        served_per_s=None if asked.served is None else rate_per_s(asked.served),
        calibration=measured,
        for_s=duration_s(asked.load_for),
        seed=asked.seed,
        trace=recorded,
        stays_home=asked.stays_home,
    )


def simulate(config: Config, world: WorldOptions, asked: Asked) -> None:
    """Play it, and tell what came of it.

    Raises:
        BrokenPromiseError: the simulated gateway did what must never happen.
        PolicyError: see ``contest.with_policy``.
        OSError: a report cannot be written.
    """
    if not asked.policies and asked.html is None:
        outcomes = plan.compare(world)
        lines, told = plan.table(outcomes), plan.report(outcomes)
    else:
        policies = asked.policies or (contest.HOME_ALONE, contest.AS_CONFIGURED)
        with _progress() as bars:
            result = contest.hold(config, world, policies, lambda name: _bar(bars, name))
        lines, told = contest.table(result), contest.report(result)
        if asked.html is not None:
            from gateway.simulate.page import write_page

            write_page(result, world.scheduler.queries, asked.html)
    for line in lines:
        typer.echo(line)
    if asked.report is not None:
        asked.report.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _bar(bars: Progress, name: str) -> Callable[[int, int], None]:
    task = bars.add_task(name, total=None)
    return lambda slot, slots: bars.update(task, completed=slot, total=slots)
