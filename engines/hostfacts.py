"""What an engine host is told before it starts, and what it tells others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec


@dataclass(frozen=True)
class HostSettings:
    """How a host runs.

    Attributes:
        workdir: a folder of this host alone; Spark's files, its certificate and ``host.json`` go there.
        master: Spark's master.
        cores: tasks at a time.
        conf: the user's Spark settings.
    """

    workdir: Path
    master: str
    cores: int
    conf: Mapping[str, str] = field(default_factory=dict)


class HostFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``host.json``, written once the host listens.

    Attributes:
        host: its name.
        pid: its process.
        address: where it listens.
        port: where it listens.
        started: seconds since 1970.
    """

    host: str
    pid: int
    address: str
    port: int
    started: float


@dataclass(frozen=True)
class End:
    """Why a host ended, and the exit code for it."""

    reason: str
    code: int
