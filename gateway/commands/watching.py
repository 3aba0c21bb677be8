"""``spillway status`` and ``spillway top``: what the gateway does now, for people at a terminal."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway.commands.common import ANSWER_WITHIN_S, FAILED, V1, ConfigPath, fail, loaded, why_another

if TYPE_CHECKING:
    from rich.console import Console

    from gateway.config import Config
    from gateway.views.lastseen import LastSeen

_EACH_S: Final = 1.0
_RECENT: Final = 8


def register(main: typer.Typer) -> None:
    """Add the commands."""
    main.command(epilog="Example: spillway status examples/email.yaml")(status)
    main.command(epilog="Example: spillway top examples/email.yaml")(top)


def status(
    config: ConfigPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print all that is known, as JSON.")] = False,
) -> None:
    """Show queries, VMs and money of the running gateway; if none runs, as they were at the end of the last one."""
    found = loaded(config)
    from rich.console import Console

    from gateway.views.http.asking import AskError
    from gateway.views.terminal import overview

    try:
        if as_json:
            typer.echo(json.dumps(_asked(found, "/status"), indent=2))
        else:
            Console().print(overview(_looked_at(found)))
    except AskError as error:
        seen = _last_seen(found, str(error))
        typer.echo(f"{error}\n{seen.heading}", err=as_json)
        if as_json:
            typer.echo(json.dumps({**seen.status, "phase": "not running"}, indent=2))
        else:
            Console().print(overview(after_the_end(seen)))


def _asked(config: Config, path: str) -> Any:
    """Return what the gateway answers.

    Raises:
        AskError: none answers, or it refuses.
    """
    from gateway.views.http.asking import ask

    return ask(config, path, ANSWER_WITHIN_S)


def _last_seen(config: Config, no_answer: str) -> LastSeen:
    """Return what a gateway of the config has shown before it ended; exit with the reason if none ever ran."""
    from gateway.views.lastseen import LastSeenError, read_last_seen

    try:
        seen = read_last_seen(config.gateway.state_dir)
    except LastSeenError as error:
        fail(f"{no_answer}. {error}", FAILED)
    if seen is None:
        fail(no_answer, FAILED)
    return seen


def after_the_end(seen: LastSeen) -> dict[str, Any]:
    """Return the answers of a gateway that does not run, as those of one that does are."""
    from gateway.views.terminal import ENDED

    status = {**seen.answers["status"], "phase": "not running", "paused": False, "trouble": ""}
    queries = [
        {**query, "state": ENDED if query["state"] == "running" else query["state"]}
        for query in seen.answers["queries"]["queries"]
    ]
    return {**seen.answers, "status": status, "queries": {"queries": queries}}


def top(config: ConfigPath) -> None:
    """Show queries, VMs, money and the last decisions, anew each second. End it with Ctrl-C."""
    from rich.console import Console

    from gateway.views.http.asking import AskError

    found, console = loaded(config), Console()
    if not console.is_terminal:
        fail("spillway top needs a terminal; for programs there is: spillway status --json", FAILED)
    try:
        asyncio.run(_watch(found, console))
    except KeyboardInterrupt:
        return
    except AskError as error:  # said after the screen is as it was before
        fail(str(error), FAILED)


async def _watch(config: Config, console: Console) -> None:
    from rich.live import Live

    from gateway.views.terminal import overview
    from infra.clock import SystemClock

    clock = SystemClock()
    with Live(overview(_looked_at(config, _RECENT)), console=console, screen=True, auto_refresh=False) as live:
        while True:
            await clock.sleep_until(clock.now() + _EACH_S)
            live.update(overview(_looked_at(config, _RECENT)), refresh=True)


def _looked_at(config: Config, decisions: int = 0) -> dict[str, Any]:
    """Return answers of the API, by what they are about.

    Raises:
        AskError: no gateway answers, or one with another ``state_dir``.
    """
    from gateway.views.http.asking import AskError, ask

    answers = {name: ask(config, f"{V1}/{name}", ANSWER_WITHIN_S) for name in ("status", "queries", "vms", "costs")}
    if another := why_another(config, answers["status"]):
        raise AskError(another)
    if decisions:
        answers["decisions"] = ask(config, f"{V1}/decisions?limit={decisions}", ANSWER_WITHIN_S)
    return answers
