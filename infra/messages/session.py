"""Messages about a link: greeting, enrolment, heartbeats, the end."""

from __future__ import annotations

from infra.messages.base import ChannelName, Message
from infra.runtime import Runtime


class GatewayHello(Message, frozen=True, kw_only=True):
    """First frame of the gateway on each connection; a host serves the newest ``session``."""

    protocol: int
    session: str
    channel: ChannelName


class HostHello(Message, frozen=True, kw_only=True):
    """The host's answer: its name and what it runs.

    Attributes:
        host: its name.
        session: the gateway's.
        runtime: the versions and settings that it runs with.
        ready: whether its warm-up batch is done.
        reclaimed_in_s: the provider reclaims its VM in this many seconds; None: not announced.
        tables: the fingerprints of the versions of static tables that it has.
    """

    host: str
    session: str
    runtime: Runtime
    ready: bool
    reclaimed_in_s: float | None = None
    tables: tuple[str, ...] = ()


class HostReady(Message, frozen=True, kw_only=True):
    """Sent on the control channel once the warm-up batch is done, if the hello said ``ready=False``."""

    boot_s: float


class EnrolRequest(Message, frozen=True, kw_only=True):
    """The gateway, proved by its client certificate, asks a new host to prove itself; ``nonce``: 32 random bytes."""

    nonce: bytes


class EnrolProof(Message, frozen=True, kw_only=True):
    """HMAC-SHA256(token, sha256(host's present certificate, DER) || nonce), and a request to sign its key."""

    mac: bytes
    csr_pem: bytes


class EnrolGrant(Message, frozen=True, kw_only=True):
    """The signed certificate; from now on the token is spent and only mutual TLS is used."""

    certificate_pem: bytes


class Enrolled(Message, frozen=True, kw_only=True):
    """The host uses the certificate; the gateway may reconnect."""


class RenewRequest(Message, frozen=True, kw_only=True):
    """The gateway, authenticated by its client certificate, sends an enrolled host one more authority to trust."""

    ca_pem: bytes


class RenewProof(Message, frozen=True, kw_only=True):
    """A request to sign a new key of the host."""

    csr_pem: bytes


class RenewGrant(Message, frozen=True, kw_only=True):
    """The new key's certificate, from the authority that the request named."""

    certificate_pem: bytes


class Renewed(Message, frozen=True, kw_only=True):
    """The host presents the new certificate; the old authority is trusted until a gateway uses the new one."""


class Ping(Message, frozen=True, kw_only=True):
    """Heartbeat of either side; ``sent_s`` is the sender's clock and is returned unchanged."""

    sent_s: float


class Pong(Message, frozen=True, kw_only=True):
    """Answer to a heartbeat, with the answering side's one-minute load average and resident memory.

    ``cpu`` is the use, since its last answer, of the CPUs that it may use, in [0, 1]; None from an older host.
    """

    sent_s: float
    load1: float
    rss_bytes: int
    cpu: float | None = None


class Reclaimed(Message, frozen=True, kw_only=True):
    """Sent by the host on the control channel: the provider reclaims its VM in this many seconds."""

    in_s: float


class HostEnding(Message, frozen=True, kw_only=True):
    """Sent by a host whose JVM has exited: the queries that Spark was running, one of which may have caused it."""

    suspects: tuple[str, ...]


class Shutdown(Message, frozen=True, kw_only=True):
    """Asks the host to exit."""


class Bye(Message, frozen=True, kw_only=True):
    """The last frame before the sender closes the link, with the reason."""

    reason: str
