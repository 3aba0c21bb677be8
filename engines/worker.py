"""The engine host as a program: ``python -m engines.worker``; ``spillway worker`` calls it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import threading
from pathlib import Path

from engines.host import Host
from engines.hostfacts import End, HostSettings
from engines.spark.session import SessionError
from infra.clock import SystemClock
from infra.link.keys.trust import TrustError, UserData
from infra.loading import collect_seldom
from infra.service.logformat import formatter_for

_log = logging.getLogger("spillway.worker")
_CLEAN_UP_S = 90.0


def main(user_data: Path, workdir: Path, master: str = "", cpus: str | None = None) -> int:
    """Run an engine host until it is stopped.

    Args:
        user_data: the file with its name and its gateway's authority (`infra.link.keys.trust.UserData`, JSON).
        workdir: a folder of this host alone.
        master: Spark's master; empty means ``local[N]``, N being the number of CPUs it may use.
        cpus: the CPUs it may use, such as ``0,2-3``; None: no change.

    Returns:
        The exit code: 0 after an orderly end, 2 when it cannot start with these settings, 1 otherwise.
    """
    collect_seldom()
    handler = logging.StreamHandler()
    handler.setFormatter(formatter_for(handler.stream))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs every connection, and each loss at length
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # the gateway gets Spark's errors anyway
    try:
        if cpus:
            # Before Spark starts, so that the JVM and all Python workers inherit it.
            os.sched_setaffinity(0, cpu_set(cpus))
        cores = len(os.sched_getaffinity(0))
        given = UserData.from_json(user_data.read_bytes())
        workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings = HostSettings(workdir.resolve(), master or f"local[{cores}]", cores, given.spark_conf)
        end = asyncio.run(_run(given, settings))
    except (SessionError, TrustError, ValueError, OSError) as error:
        _log.error("cannot start: %s", error)
        return 2
    _log.info("ended: %s", end.reason)
    return end.code


def exit_within(within_s: float, code: int) -> None:
    """Make sure that this process exits within a time limit, even if something hangs: its VM ends with it."""

    def leave() -> None:
        _log.error("cleaning up took more than %g s: not completed", within_s)
        os._exit(code)

    timer = threading.Timer(within_s, leave)
    timer.daemon = True
    timer.start()


def cpu_set(text: str) -> set[int]:
    """Return the CPUs of a list such as ``0,2-3``.

    Raises:
        ValueError: the list is empty or malformed.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"cpus {text!r}: write them as 0,2-3")
        found.update(range(int(first), int(last or first) + 1))
    return found


async def _run(user_data: UserData, settings: HostSettings) -> End:
    return await Host(user_data, settings, SystemClock(), lambda end: exit_within(_CLEAN_UP_S, end.code)).run()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m engines.worker", description=main.__doc__)
    parser.add_argument("--user-data", type=Path, required=True)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--master", default="")
    parser.add_argument("--cpus")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    sys.exit(main(given.user_data, given.workdir, given.master, given.cpus))
