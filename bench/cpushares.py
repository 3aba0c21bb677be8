"""Where the CPU goes while gateways play: in the gateway, in home's engine host, in the VMs', and in the kernel."""

from __future__ import annotations

import contextlib
import re
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from types import TracebackType

import psutil

EVERY_S = 0.5
_CONFIG = re.compile(r"/stage/([^/]+)/config\.yaml$")


@dataclass(slots=True)
class CpuShares:
    """Samples the processes of this machine; a context manager.

    Attributes:
        used_s: seconds of CPU of each part while a gateway plays, by the name of the play.
    """

    used_s: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    _before: dict[str, dict[int, float]] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> CpuShares:
        self._thread = threading.Thread(target=self._sample, name="cpu shares")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(EVERY_S):
            play, now = _seen()
            for part, of_process in now.items():
                before = self._before.get(part, {})
                if play is not None:
                    self.used_s[play][part] += sum(
                        used_s - before[pid] for pid, used_s in of_process.items() if pid in before
                    )
            self._before = now


def _seen() -> tuple[str | None, dict[str, dict[int, float]]]:
    """Return what is played now, and the CPU seconds of each process so far, by part."""
    play, found = None, defaultdict[str, dict[int, float]](dict)
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        part = _part(words)
        if part == "gateway" and (match := next(filter(None, map(_CONFIG.search, words)), None)):
            play = match.group(1)
        if part is None:
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in (process, *(process.children(recursive=True) if part != "gateway" else ())):
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = each.cpu_times()
                    found[part][each.pid] = times.user + times.system
    kernel = psutil.cpu_times()
    found["kernel"][0] = getattr(kernel, "irq", 0.0) + getattr(kernel, "softirq", 0.0)
    return play, found


def _part(words: list[str]) -> str | None:
    if "engines.worker" in words:
        return "VM" if any("/vms/" in word for word in words) else "home"
    return "gateway" if "run" in words and "gateway" in words else None
