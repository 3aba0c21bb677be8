"""Processes that outlive the program that started them, and can be identified safely later.

A process is identified by its number and its start mark: the kernel's boot id and the tick at which the process began.
The kernel reuses numbers, but never the pair. A wall-clock start time would not do, since it moves when the clock is
set.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

_PROC: Final = Path("/proc")
_BOOT_ID: Final = _PROC / "sys/kernel/random/boot_id"
# Fields of /proc/PID/stat after the name in brackets: 0 is the state, 19 the start in ticks since the boot.
_STATE, _START_TICKS = 0, 19


def spawn(command: Sequence[str], log: Path) -> int:
    """Start ``command`` in a session of its own, output to ``log``, and return its process number.

    ``posix_spawn`` and not ``subprocess``: a ``Popen`` object would warn, or kill the process, when the gateway exits
    first.

    Raises:
        OSError: the program cannot be started.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawnp(command[0], list(command), dict(os.environ), file_actions=files, setsid=True)


def start_mark(pid: int) -> str | None:
    """Return what distinguishes this process from every other with the same number; None when it is not running."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        if not _BOOT_ID.exists():
            process = psutil.Process(pid)
            return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, psutil.NoSuchProcess):
        return None
    return None if fields[_STATE] in "ZX" else f"{_BOOT_ID.read_text().strip()}:{fields[_START_TICKS]}"


def is_running(pid: int, mark: str) -> bool:
    """Return whether the process from which ``mark`` was taken still runs."""
    return start_mark(pid) == mark


def find_by_argument(argument: str) -> int | None:
    """Return the session leader among our user's processes that was started with this argument."""
    for process in psutil.process_iter(["cmdline"]):
        if argument in (process.info["cmdline"] or ()) and _session_of(process.pid) == process.pid:
            return int(process.pid)
    return None


def ask_to_end(pid: int, mark: str) -> None:
    """Send SIGTERM to the process, if it is still the same one."""
    if is_running(pid, mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def kill_session(pid: int, mark: str) -> None:
    """Kill the process and everything left of its session, even if the session leader is dead already.

    The kernel does not reuse a number while a session carries it. So if another process has the number now, nothing of
    our session is left, and nothing is killed.
    """
    present = start_mark(pid)
    if present is not None and present != mark:
        return
    for member in tuple(_members(pid)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)


def session_is_empty(pid: int, mark: str) -> bool:
    """Return whether no process of the session runs any more."""
    present = start_mark(pid)
    if present is not None:
        return present != mark
    return not any(True for _ in _members(pid))


def wait_empty(pid: int, mark: str, within_s: float) -> bool:
    """Block until the session is empty, at most ``within_s``; for use after a kill, which takes milliseconds."""
    deadline_s = time.monotonic() + within_s
    while not session_is_empty(pid, mark):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.005)
    return True


def _members(session: int) -> Iterator[int]:
    for pid in psutil.pids():
        if _session_of(pid) == session and start_mark(pid) is not None:
            yield pid


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None
