"""``spillway try``: the first results of a config's queries, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.common import BAD_INPUT, FAILED, ConfigPath, fail, loaded, with_query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from gateway.config import Config


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command("try", epilog="Example: spillway try examples/email.yaml email-processor --rows 5")(try_)


def try_(
    config: ConfigPath,
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="Only this query. Default: all.")] = None,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="How many rows of each result to show.")] = 20,
    events: Annotated[int, typer.Option(min=1, max=100_000, help="How many events of each source to read.")] = 1000,
    sample: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[STREAM=]FILE", help="Read this file in place of the source (of that stream); needs QUERY."
        ),
    ] = None,
) -> None:
    """Run queries over the first events of their sources, and show the first rows. Nothing is written or sent."""
    found = loaded(config) if query is None else with_query(config, query)
    if sample and query is None:
        fail("--sample needs the query whose source it stands for: spillway try CONFIG QUERY --sample FILE", BAD_INPUT)
    from rich.console import Console

    from gateway.views.tryout.sampling import SampleError, given_files

    given: dict[str, Path] = {}
    if query is not None:
        try:
            given = given_files(found.queries[query], sample or [])
        except SampleError as error:
            fail(str(error), BAD_INPUT)
    names = list(found.queries) if query is None else [query]
    raise typer.Exit(_tried(Console(), found, names, given, rows, events))


def _tried(out: Console, config: Config, names: list[str], given: Mapping[str, Path], rows: int, events: int) -> int:
    from rich.console import Console

    from engines.spark.session import SessionError
    from gateway.views.tryout.trying import NotTried, try_queries
    from gateway.views.tryout.tryview import shown

    code = 0
    try:
        with Console(stderr=True).status("") as status:
            for outcome in try_queries(config, names, given, events, status.update):
                if isinstance(outcome, NotTried):
                    typer.echo(outcome.why, err=True)
                    code = max(code, BAD_INPUT if outcome.refused else FAILED)
                else:
                    out.print(shown(outcome, rows))
    except SessionError as error:
        fail(str(error), FAILED)
    return code
