"""Commands by which an operator overrules the gateway."""

from __future__ import annotations

import urllib.parse
from typing import Annotated, Any, Final

import typer

from gateway.commands.common import V1, ConfigPath, QueryName, asked, loaded, with_query

_WITHIN_S: Final = 60.0
_RELOAD_WITHIN_S: Final = 300.0
_HowLong = Annotated[str, typer.Option("--for", metavar="DURATION", help="It ends by itself after this; at most 168h.")]
_VmName = Annotated[str, typer.Argument(metavar="VM", help="The VM's name, as status shows it.")]


def register(main: typer.Typer) -> None:
    """Add the commands."""
    for command, example in (
        (pin, "pin examples/email.yaml email-processor home --for 30m"),
        (unpin, "unpin examples/email.yaml email-processor"),
        (restart, "restart examples/email.yaml email-processor"),
        (pause, "pause examples/email.yaml --for 10m"),
        (resume, "resume examples/email.yaml"),
        (drain_vm, "drain-vm examples/email.yaml vm-1"),
        (stop_vm, "stop-vm examples/email.yaml vm-1"),
        (reload, "reload examples/email.yaml"),
        (drain, "drain examples/email.yaml"),
    ):
        main.command(epilog=f"Example: spillway {example}")(command)


def pin(
    config: ConfigPath,
    query: QueryName,
    to: Annotated[str, typer.Argument(metavar="home|cloud|SHARE", help="Where its events go; a share as in 30%.")],
    how_long: _HowLong = "1h",
) -> None:
    """Send a fixed part of a query's events to VMs, whatever its latency. It does not overrule budget and max_vms."""
    order = {"to": to if to in ("home", "cloud") else _share(to), "for": how_long}
    _order(with_query(config, query), f"/queries/{_quoted(query)}/pin", order)


def unpin(config: ConfigPath, query: QueryName) -> None:
    """End a pin: the policy decides again."""
    _order(with_query(config, query), f"/queries/{_quoted(query)}/unpin")


def restart(config: ConfigPath, query: QueryName) -> None:
    """Open a query that has failed again, now."""
    _order(with_query(config, query), f"/queries/{_quoted(query)}/restart")


def pause(config: ConfigPath, how_long: _HowLong = "1h") -> None:
    """Leave VMs and shares as they are for some time, as far as the budget allows."""
    _order(loaded(config), "/decisions/pause", {"for": how_long})


def resume(config: ConfigPath) -> None:
    """Decide again after a pause."""
    _order(loaded(config), "/decisions/resume")


def drain_vm(config: ConfigPath, vm: _VmName) -> None:
    """Send a VM no more runs, let it finish those it has, and terminate it."""
    _order(loaded(config), f"/vms/{_quoted(vm)}/drain")


def stop_vm(config: ConfigPath, vm: _VmName) -> None:
    """Terminate a VM now. Its open runs are dispatched elsewhere."""
    _order(loaded(config), f"/vms/{_quoted(vm)}/stop")


def reload(config: ConfigPath) -> None:
    """Let the gateway read its config file again. It takes in all of it, or says why not and changes nothing."""
    typer.echo(asked(loaded(config), f"{V1}/reload", _RELOAD_WITHIN_S, {})["done"])


def drain(config: ConfigPath) -> None:
    """Deliver what was read, terminate all VMs, and end the gateway."""
    _order(loaded(config), "/drain")


def _order(config: Any, path: str, order: dict[str, Any] | None = None) -> None:
    typer.echo(asked(config, V1 + path, _WITHIN_S, order or {})["done"])


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _share(text: str) -> float:
    from gateway.config.words.units import share_fraction

    try:
        return float(share_fraction(text))
    except ValueError as error:
        raise typer.BadParameter(f"{error}; or write home or cloud") from error
