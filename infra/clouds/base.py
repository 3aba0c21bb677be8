"""What every cloud can do, and how it fails.

A refusal by the outside world is an outcome that the caller decides about, so each kind has a class of its own and
says what to do; a wrong call of ours is a bug and raises whatever Python raises.
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
    """No machine can be had now: the limit is reached, or the provider has none."""


class BootError(CapacityError):
    """A machine was ordered but did not boot in time; it has been terminated."""


class QuotaError(CapacityError):
    """The account may have no more of this kind; another kind or another place may still be had."""


class CredentialsError(CloudError):
    """The provider does not accept who we are, or does not let us do this."""


class OrderError(CloudError):
    """What was asked for does not exist there or does not fit together: the config has to be corrected."""


class GoneError(CloudError):
    """The machine is not there any more."""


class UnavailableError(CloudError):
    """The provider does not answer, or not sensibly; whether it did what was asked is unknown.

    Attributes:
        after_s: when it wants to be asked again, as far as it said; 0 when it did not.
    """

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class ThrottledError(CloudError):
    """The provider asks us to come back later, and did not do what was asked.

    Attributes:
        after_s: when, as far as it said; 0 when it did not.
    """

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


@dataclass(frozen=True, kw_only=True)
class Node:
    """A rented machine.

    Attributes:
        id: the provider's own, unique for ever.
        name: what the gateway called it; not unique.
        host: the name in the user data it was started with, which is the name in its certificate.
        state: ``gone`` when it ended by itself; it is billed and listed until it is destroyed.
        address: where its engine host listens; empty while starting.
        port: the port there; 0 while starting.
        created_at_s: seconds since 1970 when it was ordered.
        tags: as given to ``create``.
        size: the provider's word for what kind of machine it is; empty where there is one kind only.
        boot: ``emulated`` when the host was warm and its boot time only waited for.
        setbacks: what went wrong before it was had, oldest first, for people; known to who ordered it only.
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
    setbacks: tuple[str, ...] = field(default=(), compare=False)


class Cloud(Protocol):
    """A provider. All methods may be called concurrently and after a restart of the gateway."""

    async def create(self, name: str, tags: Mapping[str, str], user_data: str) -> Node:
        """Order a machine and return it once its engine host listens.

        Cancelling gives back what was ordered.

        Args:
            name: for people; need not be unique.
            tags: kept by the provider with the machine; ``list`` finds it by them.
            user_data: ``infra.link.keys.trust.UserData`` as JSON. A host that was warm has used up its own already and
                does not see this one (``Node.boot`` says ``emulated``).

        Raises:
            CloudError: of the kind that fits.
        """
        ...

    async def destroy(self, node_id: str) -> None:
        """Give a machine back; returns once it is. One that is not there any more is no error.

        Raises:
            CloudError: of the kind that fits.
        """
        ...

    async def list(self, tags: Mapping[str, str]) -> list[Node]:
        """Return the machines that carry all of ``tags``, oldest first, whoever ordered them."""
        ...

    async def close(self) -> None:
        """Let go of what the gateway itself holds; machines that were created stay."""
        ...


@runtime_checkable
class Warms(Protocol):
    """A cloud that can hold hosts ready before they are ordered."""

    async def prepare(self, user_data: Callable[[str], str]) -> list[Node]:
        """Start the hosts that are to be ready, if any are, and return all of them; see ``ProcessCloud.prepare``."""
        ...


@runtime_checkable
class Learns(Protocol):
    """A cloud with several kinds of machine, which orders another kind after one that was of no use."""

    def unfit(self, node: Node) -> None:
        """Hear that a machine came up and could not be used: its kind is ordered after all others for a while."""
        ...


@runtime_checkable
class Overheard(Protocol):
    """A cloud whose machines' output can be read."""

    async def last_words(self, node_id: str) -> str:
        """Return the end of what a machine wrote, once it has ended or soon; empty if nothing is known."""
        ...
