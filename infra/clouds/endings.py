"""How a machine without a gateway stops its own bill, provider by provider.

A machine holds no right to the provider's API, so shutting down is all that it can do. Where that does not end the
bill, the rest ends when a gateway with the machine's tag starts again: its reaper deletes the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_POWER_OFF: Final = ("shutdown", "-h", "now")


@dataclass(frozen=True, slots=True)
class Ending:
    """What an engine host does when it ends by itself.

    Attributes:
        command: run by the host as its last act, with the right to shut the machine down; empty where the host is all
            that there is.
        needs: what the machine must have been ordered with.
        still_costs: what costs money after the command, until the machine is deleted; empty if nothing does.
    """

    command: tuple[str, ...] = ()
    needs: str = ""
    still_costs: str = ""


ENDINGS: Final[Mapping[str, Ending]] = {
    "process": Ending(),
    "ec2": Ending(_POWER_OFF, needs="InstanceInitiatedShutdownBehavior=terminate"),
    "gce": Ending(_POWER_OFF, still_costs="its disk and a static address"),
    "openstack": Ending(_POWER_OFF, still_costs="all of it: a server that is shut down keeps its place"),
}
