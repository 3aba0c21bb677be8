"""``spillway simulate``: a gateway's config, or a file of graphs, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gateway.commands.common import BAD_INPUT, FAILED, ConfigPath, fail, loaded

if TYPE_CHECKING:
    from gateway.simulate.command import Asked

Served = Annotated[
    str | None, typer.Option(metavar="RATE", help="The rate that one engine host can serve, as in 2000/s.")
]
Parameters = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="What spillway profile wrote, in place of --served; faults of VMs; repeatable."),
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="CSV with at_s,query,events,bytes. Default: the config's replay."),
]
LoadFor = Annotated[
    str | None,
    typer.Option(
        "--for", metavar="DURATION", help="How long events arrive without a trace. Default: as the profile, else 10m."
    ),
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
Events = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Write event logs to this new folder, as a gateway has them: of the first seed, with its faults.",
    ),
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
    events: Events = None,
) -> None:
    """Simulate a config, or CEPSim's graphs, in virtual time. A config is compared with home alone, or by policies."""
    from gateway.simulate.command import Asked

    policies = [name.strip() for name in policy.split(",") if name.strip()]
    asked = Asked(
        model=model, served=served, parameters=parameters or (), trace=trace, load_for=load_for, begins=begins,
        stays_home=stays_home or (), seed=seed, seeds=seeds, policies=policies, report=report, html=html,
        events=events,
    )  # fmt: skip
    _simulated(config, asked)


def _simulated(path: Path, asked: Asked) -> None:
    """Simulate what a file describes and print the result; exit if the file or an option is wrong."""
    from gateway.config import ConfigError
    from gateway.simulate import command
    from gateway.simulate.graphs.command import simulate_graphs
    from gateway.simulate.graphs.reading import is_graphs

    try:
        if is_graphs(path):
            simulate_graphs(path, asked)
        else:
            command.simulate(loaded(path), asked)
    except (ConfigError, command.BadInputError) as error:
        fail(str(error), BAD_INPUT)
    except command.FailedError as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(f"{error.filename or asked.events or asked.report or asked.html}: {error.strerror or error}", FAILED)
