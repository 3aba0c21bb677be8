"""A site: a network namespace with one address, in which programs run."""

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
    """A site with its own address. ``Wan`` creates it.

    Attributes:
        name: the name given to ``Wan.add``.
        namespace: the network namespace, as ``ip netns`` knows it.
        address: the address at which the other sites reach it.
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
        """Return the command that runs ``command`` at this site; it ends with the thread that started it."""
        return inside(self.namespace, *command)

    async def run(
        self, *command: str, stdin: int | None = None, stdout: int | None = None, stderr: int | None = None
    ) -> asyncio.subprocess.Process:
        """Start a program at this site; it and all its children end with the site.

        Args:
            command: the program and its arguments; it shares this process's files and environment.
            stdin: as for ``asyncio.create_subprocess_exec``, like the next two.
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
        """Create the namespace and attach it to a bridge of the WAN."""
        await namespaces.add(self.namespace)
        port = f"port-{self._mac[-2:]}"
        await ip(
            wan_namespace,
            f"link add {port} type veth peer name eth0 address {self._mac} netns {self.namespace}",
            f"link set {port} master {bridge} up",
        )
        self._plug = (wan_namespace, port)
        # Packets leave in the size that they have on a WAN: joined packets would be delayed and lost together.
        await ip(
            self.namespace,
            f"address add {self.address}/{_BITS} dev eth0",
            "link set eth0 gso_max_segs 1 up",
        )
        await passing(wan_namespace)
        await passing(self.namespace)

    async def know(self, other: WanSite) -> None:
        """Store the other site's address permanently, so that a cut is silent instead of "no route to host"."""
        await ip(self.namespace, f"neighbor replace {other.address} lladdr {other._mac} dev eth0 nud permanent")

    async def end(self) -> None:
        """End every process here and remove the namespace.

        Raises:
            WanError: a process does not exit.
        """
        for process in self._processes:
            if process.returncode is None:
                process.kill()  # it may have just started, and not be in the namespace yet
        if self._plug is not None:
            # First delete the port: a removed namespace exists, and answers, for a while.
            (namespace, port), self._plug = self._plug, None
            await ip(namespace, f"link delete {port}")
        await namespaces.remove(self.namespace)
        # The kernel has ended them; asyncio notices a little later. Do not wait for their handles: these also wait
        # until all output is read, which may never happen.
        try:
            async with asyncio.timeout(_REAPED_S):
                while any(process.returncode is None for process in self._processes):  # noqa: ASYNC110 - no event to wait for
                    await asyncio.sleep(0.01)
        except TimeoutError as error:
            raise WanError(f"{self} is removed, but asyncio has not noticed that its processes ended") from error
