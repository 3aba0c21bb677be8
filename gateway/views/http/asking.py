"""Asks the running gateway of a config, for the command line."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gateway.views.http.access import TokenError, read_token, token_path

if TYPE_CHECKING:
    from gateway.config.models import Config


class AskError(Exception):
    """There is no answer, or the gateway refused; the message says why."""


def ask(config: Config, path: str, within_s: float, order: Mapping[str, Any] | None = None) -> Any:
    """Return what the running gateway answers, decoded.

    Args:
        config: the gateway's.
        path: of the API.
        within_s: how long to wait.
        order: of an action, which needs the token; None: something is only looked at.

    Raises:
        AskError: no gateway answers, or it refuses.
    """
    listen = config.gateway.api.listen
    headers = {"Content-Type": "application/json"}
    if order is not None:
        headers["Authorization"] = f"Bearer {_token(config)}"
    data = None if order is None else json.dumps(order).encode()
    request = urllib.request.Request(f"http://{listen}{path}", headers=headers, data=data)
    start = f"start it with: spillway run {config.file or 'CONFIG'}"
    try:
        with urllib.request.urlopen(request, timeout=within_s) as answer:  # noqa: S310 -- http, as it says
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise AskError(error.read().decode(errors="replace") or str(error)) from error
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise AskError(f"no gateway answers at {listen} ({reason}); {start}") from error


def _token(config: Config) -> str:
    path = token_path(config.gateway.state_dir, config.gateway.api.token_file)
    try:
        return read_token(path)
    except FileNotFoundError as error:
        run = f"spillway run {config.file or 'CONFIG'}"
        raise AskError(f"{path} does not exist: no gateway has run with this config; {run} makes it") from error
    except TokenError as error:
        raise AskError(str(error)) from error
    except OSError as error:
        raise AskError(f"{path}: {error.strerror or error}; actions need the token in it") from error
