"""``spillway report``: a past period as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.common import ANSWER_WITHIN_S, BAD_INPUT, FAILED, V1, ConfigPath, fail, loaded, why_another

if TYPE_CHECKING:
    from gateway.config import Config
    from gateway.views.live.moments import Moment

_TIME = "How long ago, as in 2h, or a UTC time."


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command(epilog="Example: spillway report examples/email.yaml --from 2h --out report.html")(report)


def report(
    config: ConfigPath,
    begins: Annotated[str, typer.Option("--from", metavar="TIME", help=_TIME)] = "24h",
    ends: Annotated[str, typer.Option("--to", metavar="TIME", help=f"{_TIME} Default: now.")] = "0s",
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write a page about a past period: the pictures of the live page, decisions and costs. No gateway needs to run."""
    found = loaded(config)
    from gateway.views.report.reporting import Period, ReportError, report_page
    from gateway.views.why.telling import moment
    from infra.clock import SystemClock

    now_s = SystemClock().wall()
    try:
        period = Period(moment(begins, now_s), moment(ends, now_s))
    except ValueError as error:
        fail(str(error), BAD_INPUT)
    if period.from_s >= period.to_s:
        fail("--from must be before --to", BAD_INPUT)
    try:
        page = report_page(found, period, now_s, _running(found))
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page, encoding="utf-8")
    except ReportError as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(f"{error.filename or out}: {error.strerror or error}", FAILED)
    typer.echo(f"{out}: open it in a browser; it needs no network")


def _running(config: Config) -> list[Moment]:
    """Return what the running gateway of a config knows of the last day; nothing if none runs."""
    import msgspec

    from gateway.views.http.asking import AskError, ask
    from gateway.views.live.moments import Moment

    try:
        if why_another(config, ask(config, f"{V1}/status", ANSWER_WITHIN_S)):
            return []
        said = ask(config, f"{V1}/history", ANSWER_WITHIN_S)
    except AskError:
        return []
    return msgspec.convert([*said["minutes"], *said["newest"]], list[Moment])
