"""The token that every action of the API needs: kept in a file that only the gateway's user can read."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path
from typing import Final

from infra.service.logformat import hide
from infra.statefiles import make_folder

TOKEN_NAME: Final = "api-token"  # noqa: S105 -- the name of the file
_TOKEN_BYTES: Final = 32
_READ_BYTES_MOST: Final = 4096
_CHARACTERS_LEAST: Final = 16
_SCHEME: Final = "bearer"


class TokenError(Exception):
    """The token's file cannot be used; the message says what to do."""


class ApiToken:
    """The token of one gateway.

    Args:
        text: the token.
    """

    def __init__(self, text: str) -> None:
        self._expected = text.encode()

    def refusal(self, authorization: str | None) -> str:
        """Return why a request may not act; empty if it may.

        Args:
            authorization: the request's header of that name.
        """
        if authorization is None:
            return "this needs the gateway's token: send the header Authorization: Bearer TOKEN"
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != _SCHEME:
            return "send the token as Authorization: Bearer TOKEN"
        # As bytes: compare_digest refuses text that is not ASCII.
        if not hmac.compare_digest(given.strip().encode(errors="surrogateescape"), self._expected):
            return "this is not the gateway's token"
        return ""


def token_path(state_dir: Path, configured: Path | None) -> Path:
    """Return the file of the token: the configured one, or one in the state_dir."""
    return configured or state_dir / TOKEN_NAME


def open_token(path: Path) -> ApiToken:
    """Return the token in a file, which is created with a random one if it does not exist.

    Raises:
        TokenError: others can read the file, or it has no token.
    """
    try:
        make_folder(path.parent)
        _create(path)
        token = read_token(path)
    except OSError as error:
        raise TokenError(f"{path}: {error.strerror or error}; check that this user may read and write there") from error
    hide([token])
    return ApiToken(token)


def _create(path: Path) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_token(path: Path) -> str:
    """Return the token in a file.

    Raises:
        TokenError: others can read the file, or it has no token.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise TokenError(f"{path} holds the token of the API, and other users can read it: chmod 600 {path}")
        raw = file.read(_READ_BYTES_MOST + 1)
    try:
        text = raw.decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if len(raw) > _READ_BYTES_MOST or len(text) < _CHARACTERS_LEAST or not text.isprintable() or " " in text:
        raise TokenError(
            f"{path} must hold one token of at least {_CHARACTERS_LEAST} letters, digits and signs: remove the file, "
            "and the gateway makes a new one when it starts"
        )
    return text
