"""``spillway simulate``: a gateway's config, or a file of graphs, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from gateway.commands.common import BAD_INPUT, FAILED, ConfigPath, fail, loaded

Served = Annotated[
    str | None, typer.Option(metavar="RATE", help="The rate that one engine host can serve, as in 2000/s.")
]
Parameters = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="What spillway profile wrote, in place of --served; faults of VMs; repeatable."),
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="CSV with at_s,query,events,bytes. Default: the config's replay rates."),
]
LoadFor = Annotated[
    str | None,
    typer.Option("--for", metavar="DURATION", help="How long events arrive, if there is no trace. Default: 10m."),
]
Begins = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="When it begins, as in 2026-12-24T18:00:00+01:00, for announced load."),
]
Model = Annotated[
    Literal["runs", "fluid"] | None,
    typer.Option(help="runs (default): simulate each run; fluid: load in arrays, for long times (docs/simulation.md)."),
]
Policies = Annotated[
    str, typer.Option(metavar="A,B,…", help="Policies to compare: home, configured, reactive, planner, static:2 …")
]
StaysHome = Annotated[
    list[str] | None,
    typer.Option(metavar="QUERY", help="A query that check says may not be split; repeatable."),
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same results.")]
Seeds = Annotated[
    int, typer.Option(min=1, max=1000, help="Play so many seeds, from --seed on: median and range of each figure.")
]
Report = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a JSON report to this file.")]
Html = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a page with charts to this file (--model fluid, or graphs).")
]


def register(main: typer.Typer) -> None:
    """Add the command."""
    epilog = "Example: spillway simulate examples/email.yaml --served 2000/s --model fluid --html out.html"
    main.command(epilog=epilog)(simulate)


def simulate(
    config: ConfigPath,
    served: Served = None,
    parameters: Parameters = None,
    trace: Trace = None,
    load_for: LoadFor = None,
    begins: Begins = None,
    model: Model = None,
    policy: Policies = "",
    stays_home: StaysHome = None,
    seed: Seed = 1,
    seeds: Seeds = 1,
    report: Report = None,
    html: Html = None,
) -> None:
    """Simulate a config, or CEPSim's graphs, in virtual time. A config is compared with home alone, or by policies."""
    if _has_graphs(config):
        others: dict[str, object] = {
            "--served": served,
            "--parameters": parameters,
            "--trace": trace,
            "--begins": begins,
            "--model": model,
            "--policy": policy,
            "--stays-home": stays_home,
            "--seeds": seeds > 1,
        }
        _simulate_graphs(config, seed, load_for, report, html, [name for name, given in others.items() if given])
        return
    from gateway.simulate import command

    found = loaded(config)
    policies = [name.strip() for name in policy.split(",") if name.strip()]
    asked = command.Asked(
        model=model or "runs", served=served, parameters=parameters or (), trace=trace, load_for=load_for or "10m",
        begins=begins, stays_home=stays_home or (), seed=seed, seeds=seeds, policies=policies, report=report,
        html=html,
    )  # fmt: skip
    try:
        command.simulate(found, asked)
    except command.BadInputError as error:
        fail(str(error), BAD_INPUT)
    except command.FailedError as error:
        fail(str(error), FAILED)


def _has_graphs(path: Path) -> bool:
    """Return whether a file has graphs and not a gateway's config; exit if it is neither."""
    from gateway.config import ConfigError
    from gateway.simulate.graphs.reading import is_graphs

    try:
        return is_graphs(path)
    except ConfigError as error:
        fail(str(error), BAD_INPUT)


def _simulate_graphs(
    path: Path, seed: int, load_for: str | None, report: Path | None, html: Path | None, not_for_graphs: Sequence[str]
) -> None:
    """Simulate graphs and print the result; exit if the file or an option is wrong."""
    from gateway.config import ConfigError
    from gateway.simulate.graphs.command import BadGraphsError, simulate_graphs

    try:
        simulate_graphs(path, seed, load_for, report, html, not_for_graphs)
    except (ConfigError, BadGraphsError) as error:
        fail(str(error), BAD_INPUT)
    except OSError as error:
        fail(f"{error.filename or report or html}: {error.strerror or error}", FAILED)
