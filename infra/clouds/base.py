"""The operations of every cloud, and its errors.

A caller decides what to do about each refusal of a provider. So each kind of refusal has a class of its own, and its
message says what to do. A wrong call by our own code is a bug and raises whatever Python raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

Boot = Literal["real", "emulated"]
NodeState = Literal["starting", "running", "gone"]


class CloudError(Exception):
    """The cloud refused or failed; the message says what, where, and what to do."""


class CapacityError(CloudError):
    """No VM is available now: the limit is reached, or the provider has none."""


class BootError(CapacityError):
    """A machine was ordered but did not boot in time; it has been terminated."""


class QuotaError(CapacityError):
    """The account may have no more of this machine type; another type or zone may still be available."""


class CredentialsError(CloudError):
    """The provider does not accept our credentials, or does not permit this operation."""


class OrderError(CloudError):
    """The order names something that does not exist, or parts that do not fit together: correct the config."""


class GoneError(CloudError):
    """The VM does not exist any more."""


class UnavailableError(CloudError):
    """The provider does not answer, or its answer makes no sense; it may or may not have done what was asked.

    Attributes:
        after_s: the pause that the provider asked for before the next try; 0 when it named none.
    """

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class ThrottledError(CloudError):
    """The provider asks us to retry later, and did not do what was asked.

    Attributes:
        after_s: the pause that it asked for; 0 when it named none.
    """

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


@dataclass(frozen=True, kw_only=True)
class Node:
    """A rented VM.

    Attributes:
        id: the provider's own id; never reused.
        name: the gateway's name for it; not unique.
        host: the host name in its user data, which is also the name in its certificate.
        state: ``gone`` when it ended by itself; it is billed and listed until it is terminated.
        address: where its engine host listens; empty while starting.
        port: the port there; 0 while starting.
        created_at_s: seconds since 1970 when it was ordered.
        tags: as given to ``create``.
        size: the provider's name of its machine type; empty where there is only one type.
        boot: ``emulated`` when the host was already warm and ``create`` only waited for the boot time.
        failures: what failed before this VM was ready, oldest first, for people; only ``create`` fills it in.
    """

    id: str
    name: str
    host: str
    state: NodeState
    address: str
    port: int
    created_at_s: float
    tags: Mapping[str, str]
    size: str = ""
    boot: Boot = "real"
    failures: tuple[str, ...] = field(default=(), compare=False)


class Cloud(Protocol):
    """A provider. All methods may be called concurrently and after a restart of the gateway."""

    async def create(self, name: str, tags: Mapping[str, str], user_data: str) -> Node:
        """Order a VM and return it once its engine host listens.

        A cancelled call terminates what it ordered.

        Args:
            name: for people; need not be unique.
            tags: kept by the provider with the machine; ``list`` finds it by them.
            user_data: ``infra.link.keys.trust.UserData`` as JSON. A warm host has used its own already and ignores this
                one (``Node.boot`` says ``emulated``).

        Raises:
            CloudError: of the kind that fits.
        """
        ...

    async def destroy(self, node_id: str) -> None:
        """Terminate a VM; return once it is terminated. It is no error if the VM does not exist any more.

        Raises:
            CloudError: of the kind that fits.
        """
        ...

    async def list(self, tags: Mapping[str, str]) -> list[Node]:
        """Return the VMs that carry all of ``tags``, oldest first, whoever ordered them."""
        ...

    async def close(self) -> None:
        """Release what the gateway itself holds; VMs that were created stay."""
        ...


@runtime_checkable
class LimitsVms(Protocol):
    """A cloud that limits the number of its VMs itself.

    Attributes:
        max_vms: the limit; it may be changed.
    """

    max_vms: int


@runtime_checkable
class Warms(Protocol):
    """A cloud that can hold hosts ready before they are ordered."""

    async def prepare(self, user_data: Callable[[str], str]) -> list[Node]:
        """Start the warm hosts, if there should be any, and return all of them; see ``ProcessCloud.prepare``."""
        ...


@runtime_checkable
class Learns(Protocol):
    """A cloud with several machine types, which orders another type after one was unusable."""

    def unfit(self, node: Node) -> None:
        """Note that a VM booted but could not be used: its type is ordered after all others for a while."""
        ...


@runtime_checkable
class ReadsLogs(Protocol):
    """A cloud whose VMs' output can be read."""

    async def log_tail(self, node_id: str) -> str:
        """Return the end of a VM's log, once the VM has exited or after a few seconds; empty if nothing is known."""
        ...
