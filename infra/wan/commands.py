"""Runs the programs ``ip`` and ``tc``, and translates their failures."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterable
from typing import Any, Final

from infra.wan.errors import WanError, WanUnavailableError

_DEADLINE_S: Final = 60.0
# Where Debian has ip, tc and bridge; a PATH that is not root's own may lack it.
_PATH: Final = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def found(program: str) -> str:
    """Return where the program is.

    Raises:
        WanUnavailableError: it is not installed.
    """
    where = shutil.which(program, path=_PATH)
    if where is None:
        raise WanUnavailableError(f"there is no {program} in PATH; .ci/wan installs what a WAN needs")
    return where


async def run(*command: str, lines: Iterable[str] = ()) -> str:
    """Run a program to its end, ``lines`` on its standard input, and return what it printed.

    Raises:
        WanError: it failed, or did not end in time.
        WanUnavailableError: it is not installed.
    """
    pipe = asyncio.subprocess.PIPE
    program = found(command[0])
    process = await asyncio.create_subprocess_exec(program, *command[1:], stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(_DEADLINE_S):
            out, err = await process.communicate("".join(f"{line}\n" for line in lines).encode())
    except TimeoutError as error:
        raise WanError(f"{' '.join(command)} did not end within {_DEADLINE_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise WanError(f"{' '.join(command)} failed: {err.decode(errors='replace').strip()}")
    return out.decode(errors="replace")


async def ip(namespace: str, *lines: str) -> None:
    """Let ``ip`` carry out lines, one after another, in a namespace.

    Raises:
        WanError: one of them failed; those before it were carried out.
    """
    await run("ip", "-n", namespace, "-batch", "-", lines=lines)


async def passing(namespace: str) -> None:
    """Return once every device of a namespace that is up carries packets.

    The kernel notices the carrier of a new device up to a second late, and drops packets until then.

    Raises:
        WanError: one does not.
    """
    waiting: list[str] = []
    try:
        async with asyncio.timeout(_DEADLINE_S):
            while True:
                links = json.loads(await run("ip", "-n", namespace, "-d", "-j", "link", "show"))
                waiting = [link["ifname"] for link in links if not _passes(link)]
                if not waiting:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError as error:
        raise WanError(f"{', '.join(waiting)} in {namespace} are up, but carry no traffic") from error


def _passes(link: dict[str, Any]) -> bool:
    # Loopback, and the tunnels that some kernels add to each new namespace, carry no traffic of ours.
    if link["link_type"] == "loopback" or "UP" not in link["flags"]:
        return True
    port = link.get("linkinfo", {}).get("info_slave_data", {})
    return bool(link["operstate"] == "UP" and port.get("state", "forwarding") == "forwarding")


def inside(namespace: str, *command: str) -> list[str]:
    """Return the command that runs ``command`` in a namespace and ends with the thread that started it."""
    return [found("setpriv"), "--pdeathsig", "KILL", "--", found("ip"), "netns", "exec", namespace, *command]
