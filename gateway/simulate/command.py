"""The command ``spillway simulate``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gateway.config import Config
from gateway.config.words.units import UnitError, duration_s, rate_per_s
from gateway.simulate import plan
from gateway.simulate.comparing import contest
from gateway.simulate.comparing.playing import (
    Played,
    alone_and_configured,
    play_fluid,
    play_runs,
    result_lines,
    result_report,
)
from gateway.simulate.configload import configured_s
from gateway.simulate.eventlogs import NO_LOGS, EventLogs, NotEmptyError
from gateway.simulate.options import WorldOptions
from gateway.simulate.parameters.calibration import Calibration, CalibrationError, read_calibration
from gateway.simulate.runs.promises import BrokenPromiseError, NeverAtRestError

RUNS, FLUID = "runs", "fluid"
MODELS = {
    RUNS: "each run is simulated, including random waits",
    FLUID: "load in arrays, slot by slot; below saturation there are no random waits",
}
_LOAD_FOR_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command's options; None, or nothing in it: not given.

    Attributes:
        model: one of ``MODELS``.
        seed: the first of the seeds.
        seeds: how many are played.
        events: where the event logs of the first seed go.
    """

    model: str | None
    served: str | None
    parameters: Sequence[Path]
    trace: Path | None
    load_for: str | None
    begins: str | None
    stays_home: Sequence[str]
    seed: int
    seeds: int
    policies: Sequence[str]
    report: Path | None
    html: Path | None
    events: Path | None


class BadInputError(ValueError):
    """The options, or the files that they name, cannot be simulated."""


class FailedError(RuntimeError):
    """The simulation failed."""


def simulate(config: Config, asked: Asked) -> None:
    """Simulate, and print which model ran and its results.

    Raises:
        BadInputError: an option, or a file that it names, is wrong.
        FailedError: the load is too high to be simulated, or the simulated gateway broke an invariant.
        OSError: a report or a log cannot be written.
    """
    try:
        if asked.html is not None and asked.model != FLUID:
            raise BadInputError(f"--html needs the fluid model, not {RUNS}: add --model {FLUID}")
        _simulate(config, asked)
    except (UnitError, plan.TraceError, CalibrationError, contest.PolicyError, NotEmptyError) as error:
        raise BadInputError(str(error)) from error
    except NeverAtRestError as error:
        raise FailedError(
            f"there are no figures for this load, since the hosts serve far less: {error}. Simulate less load, or use "
            f"--model {FLUID}, which stops then"
        ) from error
    except BrokenPromiseError as error:
        mistake = "the simulated gateway broke an invariant; this is a bug in Spillway"
        raise FailedError(f"{mistake}: {error}") from error


def _simulate(config: Config, asked: Asked) -> None:
    measured = read_calibration(*asked.parameters)
    world = _world_of(config, asked, measured)
    logs = EventLogs(asked.events, lambda text: typer.echo(text, err=True))
    seeds = range(asked.seed, asked.seed + asked.seeds)
    model = asked.model or RUNS
    play = _fluid if model == FLUID else _runs
    played = [
        play(config, replace(world, seed=seed), asked.policies, logs if seed == asked.seed else NO_LOGS)
        for seed in seeds
    ]
    typer.echo(f"model: {model} ({MODELS[model]})")
    typer.echo(plan.sent_text(world, measured))
    if len(seeds) > 1:
        typer.echo(f"seeds: {seeds[0]} to {seeds[-1]}; median, lowest and highest of each figure by itself")
    for line in result_lines(played):
        typer.echo(line)
    if asked.report is not None:
        told = result_report(dict(zip(seeds, played, strict=True)))
        asked.report.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    contests = [one.contest for one in played if one.contest is not None]
    if asked.html is not None:
        from gateway.simulate.comparing.page import write_page

        write_page(contests, world.scheduler.queries, asked.html)


def _world_of(config: Config, asked: Asked, measured: Calibration) -> WorldOptions:
    recorded = None if asked.trace is None else plan.read_trace(asked.trace)
    if asked.model == FLUID and (keys := measured.faults.only_in_runs):
        raise BadInputError(f"faults: --model {FLUID} does not simulate {' and '.join(keys)}: use --model runs")
    return plan.plan(
        config,
        served_per_s=None if asked.served is None else rate_per_s(asked.served),
        calibration=measured,
        for_s=duration_s(asked.load_for) if asked.load_for else configured_s(config) or _LOAD_FOR_S,
        begins_wall_s=0.0 if asked.begins is None else _wall_s(asked.begins),
        seed=asked.seed,
        trace=recorded,
        stays_home=asked.stays_home,
    )


def _wall_s(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInputError(f"--begins: {text!r} is no time; write it as 2026-12-24T18:00:00+01:00") from error
    if at.tzinfo is None:
        raise BadInputError(f"--begins: {text} has no time zone; add one, as in {text}+01:00")
    return at.timestamp()


def _runs(config: Config, world: WorldOptions, policies: Sequence[str], logs: EventLogs) -> Played:
    return play_runs(contest.variants(config, world, policies) if policies else alone_and_configured(world), logs)


def _fluid(config: Config, world: WorldOptions, policies: Sequence[str], logs: EventLogs) -> Played:
    names = policies or (contest.HOME_ALONE, contest.AS_CONFIGURED)
    with _progress() as bars:
        return play_fluid(contest.hold(config, world, names, lambda name: _bar(bars, name), logs))


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _bar(bars: Progress, name: str) -> Callable[[int, int], None]:
    task = bars.add_task(name, total=None)
    return lambda slot, slots: bars.update(task, completed=slot, total=slots)
