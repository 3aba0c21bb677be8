"""A gateway that takes in configs, as the reloader sees it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.config.models import Config
from gateway.reloading.changes import Changes
from gateway.reloading.reloader import Reloader, ReloadRefusedError
from tests.reloading.reload_config import BASE, config


class Running:
    """A gateway that notes what it is told."""

    def __init__(self, folder: Path, text: str = BASE) -> None:
        self.config = config(folder, text)
        self.path = folder / "config.yaml"
        self.checked: list[tuple[str, ...]] = []
        self.taken: list[Changes] = []
        self.not_now = ""
        self.refusal: Exception | None = None
        self.reloader = Reloader(self)

    def why_not_now(self) -> str:
        return self.not_now

    async def check(self, config: Config, names: tuple[str, ...]) -> None:
        assert set(names) <= set(config.queries)
        self.checked.append(names)
        if self.refusal is not None:
            raise self.refusal

    async def take_in(self, config: Config, changed: Changes) -> None:
        await asyncio.sleep(0)
        self.config = config
        self.taken.append(changed)

    async def refused(self, text: str) -> str:
        """Reload a file with this text, and return why it is refused."""
        self.path.write_text(text)
        before, taken = self.config, len(self.taken)
        with pytest.raises(ReloadRefusedError) as caught:
            await self.reloader.reload()
        assert self.config is before
        assert len(self.taken) == taken
        assert self.reloader.refused == str(caught.value)
        return str(caught.value)
