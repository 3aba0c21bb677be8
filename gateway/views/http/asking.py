"""Asks the running gateway of a config, for the command line."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gateway.connectors.servertls import pinned_context
from gateway.views.http.access import TokenError, read_token, token_path
from infra.clienttls import BadTlsFilesError

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
    api = config.gateway.api
    headers = {"Content-Type": "application/json"}
    if order is not None:
        headers["Authorization"] = f"Bearer {_token(config)}"
    data = None if order is None else json.dumps(order).encode()
    request = urllib.request.Request(f"{api.url}{path}", headers=headers, data=data)  # noqa: S310 -- http or https
    try:
        context = None if api.tls is None else pinned_context(api.tls.certificate)
        with urllib.request.urlopen(request, timeout=within_s, context=context) as answer:  # noqa: S310 -- the same
            return json.load(answer)
    except BadTlsFilesError as error:
        raise AskError(f"gateway.api.tls.certificate: {error}") from error
    except urllib.error.HTTPError as error:
        raise AskError(error.read().decode(errors="replace") or str(error)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise AskError(_why_no_answer(config, getattr(error, "reason", error))) from error


def _why_no_answer(config: Config, reason: object) -> str:
    api, run = config.gateway.api, f"spillway run {config.file or 'CONFIG'}"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"what answers at {api.listen} has another certificate than the one in gateway.api.tls, or it is not valid "
            f"now ({reason.verify_message}): nothing was sent. Start the gateway again if the config has changed"
        )
    return f"no gateway answers at {api.url} ({reason}); start it with: {run}"


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
