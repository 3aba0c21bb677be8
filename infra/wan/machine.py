"""The WAN as netem in the kernel of a small virtual machine, for machines whose own kernel has no netem.

The virtual machine has two network cards and a serial line. It bridges the cards. Commands arrive over the serial line
and are answered there. ``init`` beside this module is its whole user space; ``.ci/wan`` builds its image.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from pathlib import Path
from typing import Final

from infra.wan.base import CLOUD_BRIDGE, HOME_BRIDGE
from infra.wan.commands import found, inside, ip
from infra.wan.errors import WanError, WanUnavailableError
from infra.wan.settings import Direction

_MEMORY_MIB: Final = 192
# 3 s on an idle machine; every instruction is emulated, so a busy machine takes longer.
_BOOT_S: Final = 180.0
_ANSWER_S: Final = 30.0
_END_S: Final = 20.0
_ANSWER: Final = "wan:"
_CONSOLE_LINES_KEPT: Final = 20
# The taps by the bridge that they are attached to; the virtual machine's cards are numbered in this order.
_TAPS: Final = {HOME_BRIDGE: "wan-home", CLOUD_BRIDGE: "wan-cloud"}
# The card through which the packets of a direction leave the virtual machine.
_CARDS: Final = {Direction.UP: "eth1", Direction.DOWN: "eth0"}


class MachineLine:
    """A virtual machine between the two bridges, netem on each of its cards.

    Args:
        image: the folder with its ``kernel`` and ``initramfs``.
    """

    def __init__(self, image: Path) -> None:
        self._image = image
        self._process: asyncio.subprocess.Process | None = None
        self._console: deque[str] = deque(maxlen=_CONSOLE_LINES_KEPT)
        self._turn = asyncio.Lock()
        self._number = 0

    async def start(self, namespace: str) -> None:
        """See ``Line``."""
        for name in ("kernel", "initramfs"):
            if not (self._image / name).is_file():
                raise WanUnavailableError(f"{self._image / name} is missing; .ci/wan creates it")
        command = self._command()
        for bridge, tap in _TAPS.items():
            await ip(namespace, f"tuntap add dev {tap} mode tap", f"link set {tap} master {bridge} up")
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *inside(namespace, *command), stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
        await self._answer(0, _BOOT_S)

    async def apply(self, direction: Direction, netem: list[str]) -> None:
        """See ``Line``."""
        async with self._turn:
            if self._process is None or self._process.stdin is None:
                raise WanError("the WAN is not started")
            self._number += 1
            words = ("/bin/tc", "qdisc", "replace", "dev", _CARDS[direction], "root", "netem", *netem)
            self._process.stdin.write(f"{self._number} {' '.join(words)}\n".encode())
            await self._answer(self._number, _ANSWER_S)

    async def close(self) -> None:
        """See ``Line``."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            async with asyncio.timeout(_END_S):
                await process.communicate()

    def _command(self) -> list[str]:
        command = [
            # The WAN must not slow down because its ends are busy.
            *(found("nice"), "-n", "-10"),
            *(found("qemu-system-x86_64"), "-nodefaults", "-no-user-config", "-no-reboot"),
            # Always emulated: /dev/kvm may exist and still boot no kernel.
            *("-machine", "q35,accel=tcg", "-cpu", "max", "-m", str(_MEMORY_MIB)),
            *("-display", "none", "-monitor", "none", "-serial", "stdio"),
            *("-kernel", str(self._image / "kernel"), "-initrd", str(self._image / "initramfs")),
            *("-append", "console=ttyS0 quiet loglevel=0 panic=-1"),
        ]
        for tap in _TAPS.values():
            command += ["-netdev", f"tap,id={tap},ifname={tap},script=no,downscript=no"]
            command += ["-device", f"virtio-net-pci,netdev={tap},romfile="]
        return command

    async def _answer(self, number: int, within_s: float) -> None:
        """Read up to the answer to command ``number``; earlier answers belong to callers that were cancelled."""
        try:
            async with asyncio.timeout(within_s):
                while True:
                    words = (await self._line()).split(maxsplit=3)
                    if words[:2] == [_ANSWER, str(number)]:
                        break
        except TimeoutError as error:
            raise WanError(f"the machine has not answered within {within_s:g} s{self._said()}") from error
        if words[2] != "ok":
            raise WanError(f"in the machine: {' '.join(words[3:])}")

    async def _line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise WanError(f"the machine has ended{self._said()}")
        text = line.decode(errors="replace").strip()
        self._console.append(text)
        return text

    def _said(self) -> str:
        return "; its console: " + " | ".join(self._console) if self._console else ""
