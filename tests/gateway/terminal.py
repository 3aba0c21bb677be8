"""Commands for the config of a daemon."""

from __future__ import annotations

import asyncio
from pathlib import Path

from typer.testing import CliRunner, Result

from gateway.cli import main


class Terminal:
    """Runs commands for a daemon's config."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "config.yaml"

    async def said(self, command: str, *arguments: str, config: Path | None = None) -> Result:
        words = [command, str(config or self.config), *arguments]
        return await asyncio.to_thread(lambda: CliRunner(env={"COLUMNS": "200"}).invoke(main, words))

    async def done(self, command: str, *arguments: str) -> str:
        result = await self.said(command, *arguments)
        assert result.exit_code == 0, result.output
        return result.output
