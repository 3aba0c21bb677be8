"""What comes from a broker, what it accepts, and how it fails."""

from __future__ import annotations

from dataclasses import dataclass


class BrokerError(Exception):
    """The broker cannot be used now; the message says which one and why."""


class OldBrokerError(BrokerError):
    """The broker does not speak version 5 of the protocol."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message.

    Attributes:
        topic: where it was published.
        payload: its bytes.
        qos: with which it was delivered.
        packet_id: the broker's number of this delivery; 0 at QoS 0.
        again: the broker says that it may have sent this before (DUP).
    """

    topic: str
    payload: bytes
    qos: int
    packet_id: int
    again: bool


@dataclass(frozen=True, slots=True)
class Release:
    """The broker knows that a message of QoS 2 has arrived, and will not send it again (PUBREL)."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What the broker accepts.

    Attributes:
        receive_max: how many messages that it has not answered.
        packet_bytes_max: the largest packet; None when it does not say.
        qos_max: the highest quality of service.
    """

    receive_max: int = 65_535
    packet_bytes_max: int | None = None
    qos_max: int = 2
