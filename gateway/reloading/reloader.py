"""Reads the config again, checks all of it, and lets the running gateway take it in; or keeps the old one."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from engines.query.code import CodeError
from gateway.config import ConfigError, load
from gateway.config.codepath import code_path_for
from gateway.config.models import Config
from gateway.hosts.connection import QueryRefusedError
from gateway.query.identity import read_identity
from gateway.query.opening import TABLES, definition_of
from gateway.reloading.changes import Changes, changes
from gateway.views.check.checkstate import look_at_state
from gateway.views.logs import acquaint
from infra.link.channel import LinkLost
from infra.statefiles import StateError
from infra.threads import run_to_end

_LOG = logging.getLogger(__name__)


class ReloadRefusedError(Exception):
    """The new config cannot be used, or not now; the old one goes on. The message says why and what to do."""


class Reloadable(Protocol):
    """A running gateway that can take in another config."""

    @property
    def config(self) -> Config:
        """The present config."""
        ...

    def why_not_now(self) -> str:
        """Return why its config cannot change now; empty if it can."""
        ...

    async def check(self, config: Config, names: tuple[str, ...]) -> None:
        """Check that Spark at home can run these queries of a config.

        Raises:
            QueryRefusedError: it cannot.
            CodeError: the module of a function cannot be found.
            LinkLost: there is no engine host now.
            TimeoutError: it does not answer.
        """
        ...

    async def take_in(self, config: Config, changed: Changes) -> None:
        """Use a config that was checked."""
        ...


@dataclass
class Reloader:
    """Takes in the config file of a gateway, once at a time.

    Args:
        gateway: the running gateway.

    Attributes:
        refused: why the file was refused last; empty if it was taken in.
    """

    gateway: Reloadable
    refused: str = ""

    def __post_init__(self) -> None:
        self._turn = asyncio.Lock()

    async def reload(self) -> str:
        """Take in the config file; return what has changed, in words.

        Raises:
            ReloadRefusedError: nothing has changed.
        """
        async with self._turn:
            if why := self.gateway.why_not_now():
                raise ReloadRefusedError(why)
            try:
                said = await self._reload()
            except ReloadRefusedError as error:
                self.refused = str(error)
                _LOG.error("the config was not reloaded, the old one goes on: %s", error)
                raise
            self.refused = ""
            _LOG.info("the config was reloaded: %s", said)
            return said

    async def _reload(self) -> str:
        old = self.gateway.config
        new = await run_to_end(lambda: _loaded(old))
        acquaint(new)
        changed = changes(old, new, await run_to_end(lambda: _with_new_code(new)))
        if changed.restart:
            keys = ", ".join(changed.restart)
            raise ReloadRefusedError(
                f"{new.file}: {keys} cannot change while the gateway runs: restart it, or restore the old value"
            )
        if changed:
            await self._check(new, changed)
            await self.gateway.take_in(new, changed)
        return changed.text()

    async def _check(self, new: Config, changed: Changes) -> None:
        states = {name: await run_to_end(lambda name=name: look_at_state(new, name)) for name in changed.opened}  # type: ignore[misc]
        if wrong := [f"query {name}: {found.refusal}" for name, found in states.items() if found.refusal]:
            raise ReloadRefusedError("\n".join(wrong))
        try:
            await self.gateway.check(new, changed.opened)
        except (QueryRefusedError, CodeError) as error:
            raise ReloadRefusedError(str(error)) from error
        except (LinkLost, TimeoutError) as error:
            raise ReloadRefusedError(f"the private engine host does not answer now ({error}): try again") from error


def _loaded(old: Config) -> Config:
    if old.file is None:
        raise ReloadRefusedError("the config is not from a file")
    try:
        return load(old.file)
    except ConfigError as error:
        raise ReloadRefusedError(str(error)) from error


def _with_new_code(config: Config) -> tuple[str, ...]:
    """Return the queries whose function has other code than when they were opened. Blocks."""
    return tuple(name for name, query in config.queries.items() if query.function and _has_new_code(config, name))


def _has_new_code(config: Config, name: str) -> bool:
    query, folder = config.queries[name], config.gateway.state_dir / "queries" / name
    try:
        identity = read_identity(folder)
        definition = definition_of(name, query, code_path_for(query.function, config.folder), folder / TABLES)
        return identity is not None and not identity.is_of(definition)
    except (StateError, CodeError) as error:
        raise ReloadRefusedError(f"query {name}: {error}") from error
