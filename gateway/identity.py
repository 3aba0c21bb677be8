"""Whose state a query's folder holds."""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from gateway.statefiles import StateError, make_folder, write_atomically


class Identity(msgspec.Struct, frozen=True):
    """What a query's state belongs to: ``owner`` names the state, ``epoch`` counts the gateways that opened it."""

    owner: str
    code_hash: str
    epoch: int


def claim(query: str, folder: Path, code_hash: str) -> Identity:
    """Return the identity of the state in ``folder``, its epoch counted up; a new one where there is no state.

    Args:
        query: its name.
        folder: its part of the state_dir.
        code_hash: what its SQL, schema and code come to.

    Raises:
        StateError: the state is of another query, or cannot be read.
        OSError: the disk fails.
    """
    path = folder / "query.json"
    if path.exists():
        try:
            old = msgspec.json.decode(path.read_bytes(), type=Identity)
        except msgspec.DecodeError as error:
            raise StateError(f"{path} cannot be read ({error}): restore it from a backup") from error
        if old.code_hash != code_hash:
            raise StateError(
                f"query {query}: its SQL, schema or code changed, but {folder} holds state of the old. "
                f"Drain it with the old definition first, or begin anew: remove {folder} and choose an empty "
                "sink folder"
            )
        identity = Identity(old.owner, code_hash, old.epoch + 1)
    else:
        make_folder(folder)
        identity = Identity(secrets.token_hex(8), code_hash, 1)
    write_atomically(path, msgspec.json.encode(identity))
    return identity
