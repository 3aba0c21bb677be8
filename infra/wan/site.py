"""A site: a network namespace with one address, in which programs are run."""

from __future__ import annotations

import asyncio
from typing import Final

from infra.wan import namespaces
from infra.wan.commands import inside, ip, passing
from infra.wan.errors import WanError

_NETWORK: Final = "10.99.0"
_BITS: Final = 24
_REAPED_S: Final = 30.0


class WanSite:
    """A place with its own address. Made by ``Wan``.

    Attributes:
        name: as it was given.
        namespace: the network namespace, as ``ip netns`` knows it.
        address: where the other sites reach it.
    """

    def __init__(self, name: str, namespace: str, number: int) -> None:
        self.name = name
        self.namespace = namespace
        self.address = f"{_NETWORK}.{number}"
        self._mac = f"02:00:00:00:00:{number:02x}"
        self._processes: list[asyncio.subprocess.Process] = []
        self._plug: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"Site({self.name} at {self.address})"

    def command(self, *command: str) -> list[str]:
        """Return the command that runs ``command`` at this site; it ends when the thread that started it does."""
        return inside(self.namespace, *command)

    async def run(
        self, *command: str, stdin: int | None = None, stdout: int | None = None, stderr: int | None = None
    ) -> asyncio.subprocess.Process:
        """Start a program at this site; the site's end is its end, and that of all it started.

        Args:
            command: the program and its arguments; it shares this process's files and environment.
            stdin: as for ``asyncio.create_subprocess_exec``, like the other two.
            stdout: its output.
            stderr: its errors.

        Raises:
            OSError: it cannot be started.
        """
        process = await asyncio.create_subprocess_exec(
            *self.command(*command), stdin=stdin, stdout=stdout, stderr=stderr
        )
        self._processes = [each for each in self._processes if each.returncode is None]
        self._processes.append(process)
        return process

    async def start(self, wan_namespace: str, bridge: str) -> None:
        """Make the namespace and plug it into a bridge of the WAN's."""
        await namespaces.add(self.namespace)
        port = f"port-{self._mac[-2:]}"
        await ip(
            wan_namespace,
            f"link add {port} type veth peer name eth0 address {self._mac} netns {self.namespace}",
            f"link set {port} master {bridge} up",
        )
        self._plug = (wan_namespace, port)
        # Packets leave as large as they go over a WAN: joined ones would be delayed and lost together.
        await ip(
            self.namespace,
            f"address add {self.address}/{_BITS} dev eth0",
            "link set eth0 gso_max_segs 1 up",
        )
        await passing(wan_namespace)
        await passing(self.namespace)

    async def know(self, other: WanSite) -> None:
        """Learn for good where another site is, so that a cut is silence and not "no route to host"."""
        await ip(self.namespace, f"neighbor replace {other.address} lladdr {other._mac} dev eth0 nud permanent")

    async def end(self) -> None:
        """End every process here and remove the namespace.

        Raises:
            WanError: something does not end.
        """
        for process in self._processes:
            if process.returncode is None:
                process.kill()  # it may have been started this moment, and not be in the namespace yet
        if self._plug is not None:
            # At once: the kernel takes a namespace apart, and answers for it, a while after its removal.
            (namespace, port), self._plug = self._plug, None
            await ip(namespace, f"link delete {port}")
        await namespaces.remove(self.namespace)
        # The kernel has ended them; asyncio hears of it a little later. Their output may never have been read, so their
        # handles must not be waited for: those also wait for that.
        try:
            async with asyncio.timeout(_REAPED_S):
                while any(process.returncode is None for process in self._processes):  # noqa: ASYNC110 - no event says it
                    await asyncio.sleep(0.01)
        except TimeoutError as error:
            raise WanError(f"{self} is removed, but asyncio has not noticed that its processes ended") from error
