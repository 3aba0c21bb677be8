"""What these commands share: their arguments, exit codes, and the question to the running gateway."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

if TYPE_CHECKING:
    from gateway.config import Config

FAILED: Final = 1
BAD_INPUT: Final = 2
ANSWER_WITHIN_S: Final = 5.0
V1: Final = "/api/v1"

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="The YAML file, as in examples/email.yaml.")]
QueryName = Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.")]


def fail(text: str, code: int) -> NoReturn:
    """Print why, and exit."""
    typer.echo(text, err=True)
    raise typer.Exit(code)


def loaded(path: Path) -> Config:
    """Return a config; exit if it has mistakes."""
    from gateway.config import ConfigError, load

    try:
        return load(path)
    except ConfigError as error:
        fail(str(error), BAD_INPUT)


def with_query(path: Path, query: str) -> Config:
    """Return a config that has a query; exit if it has not."""
    config = loaded(path)
    if query not in config.queries:
        fail(f'{path} has no query "{query}"; its queries are {", ".join(config.queries)}', BAD_INPUT)
    return config


def why_another(config: Config, status: Mapping[str, Any]) -> str:
    """Return why the gateway with this status is not the config's; empty if it is."""
    there, ours = status["state_dir"], str(config.gateway.state_dir)
    if there == ours:
        return ""
    return f"the gateway at {config.gateway.api.listen} is another one: its state_dir is {there}, not {ours}"


def asked(config: Config, path: str, within_s: float = ANSWER_WITHIN_S, order: Mapping[str, Any] | None = None) -> Any:
    """Return what the running gateway of a config answers, decoded; exit if it refuses, or does not answer.

    An action is not asked of a gateway with another state_dir: both may have the same token.

    Args:
        config: the gateway's.
        path: of the API.
        within_s: how long to wait.
        order: of an action, which needs the token; None: something is only looked at.
    """
    from gateway.views.http.asking import AskError, ask

    try:
        if order is not None and (another := why_another(config, ask(config, f"{V1}/status", ANSWER_WITHIN_S))):
            fail(another, FAILED)
        return ask(config, path, within_s, order)
    except AskError as error:
        fail(_text_of(str(error)), FAILED)


def _text_of(said: str) -> str:
    try:
        return str(json.loads(said)["error"])
    except (ValueError, KeyError, TypeError):
        return said
