"""``spillway logs``: the log of a gateway, or what it says about one query."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gateway.commands.common import FAILED, ConfigPath, fail, loaded, with_query

if TYPE_CHECKING:
    from gateway.views.logfile import LogFollower

_EACH_S: Final = 0.5


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command(epilog="Example: spillway logs examples/email.yaml email-processor --follow")(logs)


def logs(
    config: ConfigPath,
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="Only what names it. Default: all.")] = None,
    last: Annotated[int, typer.Option(min=0, max=100_000, help="How many of the last records to show.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new records as they come, until Ctrl-C.")
    ] = False,
) -> None:
    """Show the log of the gateway, which runs or has run: its last records, and with --follow the next ones."""
    found = loaded(config) if query is None else with_query(config, query)
    from gateway.views.logfile import LogFollower, about, last_records

    path, wanted = found.gateway.log_file, about(query)
    if not path.exists():
        fail(f"{path} does not exist: no gateway has run with this config", FAILED)
    try:
        with closing(LogFollower(path, wanted)) as follower:
            for record in last_records(path, wanted, last) if last else ():
                typer.echo(record.rstrip("\n"))
            if follow:
                asyncio.run(_follow(follower))
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror or error}", FAILED)
    except KeyboardInterrupt:
        return


async def _follow(follower: LogFollower) -> None:
    from infra.clock import SystemClock

    clock = SystemClock()
    while True:
        for line in follower.next():
            typer.echo(line)
        await clock.sleep_until(clock.now() + _EACH_S)
