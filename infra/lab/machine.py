"""One machine of the lab: a network namespace with the instance's address, which runs its user data."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Final

from infra.wan import namespaces
from infra.wan.commands import inside, ip, run

_STUBS: Final = Path(__file__).parent / "inside"
_END_S: Final = 20.0


class Machine:
    """A machine that runs, or has ended.

    Args:
        instance_id: the id of its EC2 instance.
        address: its private address; this machine has a route to it while the lab runs.
        lab_address: the lab's address, as seen from inside.
        namespace: name of the network namespace.
        folder: for its user data and its console.
    """

    def __init__(self, instance_id: str, address: str, lab_address: str, namespace: str, folder: Path) -> None:
        self.instance_id = instance_id
        self._address = address
        self._lab_address = lab_address
        self._namespace = namespace
        self._folder = folder / instance_id
        self._process: asyncio.subprocess.Process | None = None

    @property
    def console(self) -> Path:
        """The file with all its output."""
        return self._folder / "console.log"

    @property
    def is_off(self) -> bool:
        """Whether it has ended by itself."""
        return self._process is not None and self._process.returncode is not None

    async def start(self, user_data: str) -> None:
        """Connect it and start its user data.

        Raises:
            WanError: a namespace, a device or a route cannot be created.
        """
        tools = self._folder / "bin"
        tools.mkdir(parents=True)
        for stub in _STUBS.iterdir():
            shutil.copy(stub, tools / stub.name)
            (tools / stub.name).chmod(0o755)
        (self._folder / "user-data").write_text(user_data)
        port = f"sw{secrets.token_hex(5)}"
        await namespaces.add(self._namespace)
        await run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", self._namespace)
        await run("ip", "link", "set", port, "up")
        await ip(
            self._namespace,
            f"addr add {self._address}/32 dev eth0",
            "link set eth0 up",
            f"route add {self._lab_address}/32 dev eth0",
        )
        await run("ip", "route", "add", f"{self._address}/32", "dev", port, "src", self._lab_address)
        # When the first process of the namespaces ends, all mounts are undone and all other processes are killed.
        alone = ("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
        with self.console.open("wb") as console:
            self._process = await asyncio.create_subprocess_exec(
                *inside(self._namespace, *alone, "bash", str(tools / "init"), str(self._folder)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=self._environment(tools),
            )

    async def end(self) -> None:
        """Switch it off and remove it; its console stays.

        Raises:
            WanError: a process in it does not exit.
        """
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            async with asyncio.timeout(_END_S):
                await self._process.wait()
        if self._namespace in await namespaces.existing():
            await namespaces.remove(self._namespace)

    def _environment(self, tools: Path) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG", "HOME") if name in os.environ}
        return kept | {
            "PATH": f"{tools}:{os.environ.get('PATH', os.defpath)}",
            "SPILLWAY_LAB_PYTHON": sys.executable,
            "SPILLWAY_LAB_PACKAGES": sysconfig.get_path("purelib"),
            "PIP_NO_DEPS": "1",
            "PIP_NO_INDEX": "1",
        }
