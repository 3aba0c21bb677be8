"""``spillway why``: what was decided, and why; also when no gateway runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.common import ANSWER_WITHIN_S, BAD_INPUT, FAILED, fail, loaded, with_query

if TYPE_CHECKING:
    from gateway.config import Config


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command(
        epilog="Examples: spillway why examples/email.yaml; spillway why examples/email.yaml email-processor --at 10m; "
        "spillway why examples/email.yaml --summary --since 24h; spillway why --replay state/events/00000001.jsonl"
    )(why)


def why(
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG", help="The YAML file; not with --replay.")] = None,
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="Only this query, in sentences. Default: a list of all.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long ago, as in 10m, or a UTC time. Default: now.")
    ] = None,
    last: Annotated[int, typer.Option(min=1, max=1000, help="How many decisions the list has.")] = 20,
    summary: Annotated[
        bool, typer.Option("--summary", help="Tell what VMs cost, how much of it was used, and minutes over targets.")
    ] = False,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --summary: how long ago it begins, as in 1h. Default: all.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Replay an event log (state_dir/events) with a new scheduler and compare."),
    ] = None,
) -> None:
    """List the last decisions and their reasons, or explain the one about a query: now, or at an earlier time."""
    from gateway.views.why.whyview import WhyError, spending_told

    try:
        if replay is not None:
            _replay(replay, alone=(config, query, at) == (None, None, None))
        if config is None:
            fail("give a config, as in: spillway why examples/email.yaml; or an event log: --replay FILE", BAD_INPUT)
        if since is not None and not summary:
            fail("--since is for --summary: add it, or give --at TIME", BAD_INPUT)
        found = loaded(config) if query is None else with_query(config, query)
        if summary:
            if (query, at) != (None, None):
                fail("--summary is about all queries, since a time: leave out QUERY and --at", BAD_INPUT)
            typer.echo("\n".join(spending_told(found, since)))
        elif query is None:
            _list(found, at, last)
        else:
            _explain(found, query, at)
    except WhyError as error:
        fail(str(error), BAD_INPUT)


def _replay(log: Path, *, alone: bool) -> None:
    from gateway.views.why import whyview

    if not alone:
        fail("--replay takes only its file: the log contains the settings", BAD_INPUT)
    said, same = whyview.replayed(log)
    typer.echo(said)
    raise typer.Exit(0 if same else FAILED)


def _list(config: Config, at: str | None, last: int) -> None:
    """Print the ledger's last decisions, which are there whether a gateway runs or not."""
    from rich.console import Console

    from gateway.views.why.listing import decisions_table
    from gateway.views.why.whyview import last_decisions

    lines = last_decisions(config.gateway.state_dir, at, last)
    if lines:
        Console().print(decisions_table(lines))
    else:
        typer.echo(f"nothing was decided so far, as far as {config.gateway.state_dir / 'decisions'} knows")


def _explain(config: Config, query: str, at: str | None) -> None:
    from gateway.views.why import whyview

    lines = _running(config) if at is None else None
    if lines is None:
        lines = whyview.decided(config.gateway.state_dir, [query], at or "0s")
    typer.echo("\n".join(whyview.told([query], lines, at)))


def _running(config: Config) -> Any:
    """Return the running gateway's last decisions; None if none answers, which is said."""
    from gateway.views.http.asking import AskError, ask

    try:
        return ask(config, "/why", ANSWER_WITHIN_S)
    except AskError:
        typer.echo(
            f"no gateway answers at {config.gateway.api.listen}; this is the last decision that is on disk", err=True
        )
        return None
