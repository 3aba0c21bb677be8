"""The messages between the gateway and an engine host, independent of the transport.

Each message is a small struct; bulk data (a run's rows, a result's rows, a dictionary) travels beside it as the
payload of the same frame. The two channels of a link are two connections: ``control`` (greeting, queries, credit,
heartbeats) never waits behind ``data`` (runs, results, dictionaries).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from infra.queryplan import Predicate as Predicate
from infra.queryplan import PredicateOp as PredicateOp
from infra.queryplan import QueryPlan as QueryPlan
from infra.queryplan import SwitchClass as SwitchClass
from infra.runtime import Runtime

PROTOCOL = 2

ChannelName = Literal["control", "data"]


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of every message; its tag on the wire is the struct's name unless it names one itself."""


# ------------------------------------------------------------------------------------------------------------ greeting


class GatewayHello(Message, frozen=True, kw_only=True):
    """First frame of the gateway on each connection; the newest ``session`` is the one a host serves."""

    protocol: int
    session: str
    channel: ChannelName


class HostHello(Message, frozen=True, kw_only=True):
    """The host's answer: who it is and what it runs.

    Attributes:
        host: its name.
        session: the gateway's.
        runtime: what it runs.
        ready: its warm-up batch is done.
        reclaimed_in_s: the provider takes its machine back in so many seconds; None: nobody said so.
    """

    host: str
    session: str
    runtime: Runtime
    ready: bool
    reclaimed_in_s: float | None = None


class HostReady(Message, frozen=True, kw_only=True):
    """Sent on the control channel once the warm-up batch is done, if the hello said ``ready=False``."""

    boot_s: float


# ----------------------------------------------------------------------------------------------------------- enrolment


class EnrolRequest(Message, frozen=True, kw_only=True):
    """The gateway, known by its client certificate, asks a new host to prove itself; ``nonce`` is 32 random bytes."""

    nonce: bytes


class EnrolProof(Message, frozen=True, kw_only=True):
    """HMAC-SHA256(token, sha256(host's present certificate, DER) || nonce), and a request to sign its key."""

    mac: bytes
    csr_pem: bytes


class EnrolGrant(Message, frozen=True, kw_only=True):
    """The signed certificate; from here on the token is spent and only mutual TLS is spoken."""

    certificate_pem: bytes


class Enrolled(Message, frozen=True, kw_only=True):
    """The host has the certificate in use; the gateway may reconnect."""


class RenewRequest(Message, frozen=True, kw_only=True):
    """The gateway, known by its client certificate, sends an enrolled host one more authority to trust."""

    ca_pem: bytes


class RenewProof(Message, frozen=True, kw_only=True):
    """A request to sign a new key of the host."""

    csr_pem: bytes


class RenewGrant(Message, frozen=True, kw_only=True):
    """The new key's certificate, of the authority that was named."""

    certificate_pem: bytes


class Renewed(Message, frozen=True, kw_only=True):
    """The host shows the new certificate; the authority before is trusted until a gateway proves itself by the new."""


# -------------------------------------------------------------------------------------------------------------- queries


class OpenQuery(Message, frozen=True, kw_only=True):
    """Open a query on a host.

    Attributes:
        query: name from the config.
        epoch: counts the openings of this query by gateways; answers of other epochs are not believed.
        schema_ddl: the input's schema as Spark DDL.
        sql: SQL over the view ``events``; or
        function: ``package.module:name``, DataFrame -> DataFrame.
        code_path: a folder put on the module path for ``function`` (its user's folder), or empty.
        code_hash: sha256 of what the gateway believes the query to be (see ``engines.query.code``); a host that
            computes another refuses.
        checkpoint_dir: where a stateful query keeps its state on this host; empty for a throwaway.
        begin_seq: the seq at which a stateful query without a checkpoint begins.
        max_batch_runs: at most this many runs in one micro-batch.
        result_codec: how results are packed: ``none`` or ``zstd``.
        bad_rows_most: as soon as more of 1,000 consecutive rows fail, a stateless query is broken; 0: never.
        analyse_only: plan and schemas are wanted, nothing is started.
    """

    query: str
    epoch: int
    schema_ddl: str
    sql: str = ""
    function: str = ""
    code_path: str = ""
    code_hash: str = ""
    checkpoint_dir: str = ""
    begin_seq: int = 0
    max_batch_runs: int = 16
    result_codec: Literal["none", "zstd"] = "none"
    bad_rows_most: int = 0
    analyse_only: bool = False


class QueryReady(Message, frozen=True, kw_only=True):
    """The query is open and warm.

    Attributes:
        input_schema: Arrow schema (serialised) that Spark derives from the DDL; frames carry exactly this.
        result_schema: Arrow schema (serialised) of the results.
        plan: what the plan says.
        credit_bytes: how many payload bytes the gateway may have unconsumed at this host.
        resume_seq: for a stateful query, the next seq its checkpoint wants; else 0.
        resume_end_seq: for a stateful query whose last micro-batch was planned but not committed, the end (exclusive)
            of that batch, which will run again with exactly these limits; else equal to ``resume_seq``.
    """

    query: str
    epoch: int
    input_schema: bytes
    result_schema: bytes
    plan: QueryPlan
    credit_bytes: int
    resume_seq: int = 0
    resume_end_seq: int = 0


class QueryRefused(Message, frozen=True, kw_only=True):
    """The query cannot be opened here, and why."""

    query: str
    epoch: int
    reason: str


class QueryFailed(Message, frozen=True, kw_only=True):
    """An open query died and could not be helped; its open runs must go elsewhere.

    ``broken`` says that the query itself is at fault, not this host: no other host will do better.
    """

    query: str
    epoch: int
    reason: str
    broken: bool = False


class CloseQuery(Message, frozen=True, kw_only=True):
    """Stop a query; what has not been completed will not be."""

    query: str
    epoch: int


# ----------------------------------------------------------------------------------------------------------------- data


class RunMessage(Message, frozen=True, kw_only=True, tag="Run"):
    """A run on its way to a host; the payload is its encoded rows (``infra.payload``).

    ``rows`` counts the rows in the payload, which early predicates may have made fewer than the seq range holds.
    """

    query: str
    epoch: int
    first_seq: int
    last_seq: int
    attempt: int
    rows: int


class Poison(msgspec.Struct, frozen=True, kw_only=True):
    """A row that fails the query, and Spark's reason.

    ``row`` is an index into the rows that were sent with the run or, for a stateful query, with all runs of the answer.
    """

    row: int
    reason: str


class IsolatingMessage(Message, frozen=True, kw_only=True, tag="Isolating"):
    """A run failed in its micro-batch, and the host looks for the rows at fault beside the query's next runs.

    How long that takes says nothing of what the host can serve.
    """

    query: str
    epoch: int
    first_seq: int


class Completed(Message, frozen=True, kw_only=True):
    """A run, or for a stateful query a contiguous range of them, is answered; the payload is the encoded results.

    ``batch_id`` numbers the host's micro-batches, ``batch_s`` is how long that one took.
    """

    query: str
    epoch: int
    first_seq: int
    last_seq: int
    attempt: int
    rows: int
    batch_id: int
    batch_s: float
    poison: tuple[Poison, ...] = ()


class CommittedMessage(Message, frozen=True, kw_only=True, tag="Committed"):
    """The sink holds every result of a stateful query up to and with ``last_seq``: its checkpoint may go on."""

    query: str
    epoch: int
    last_seq: int


class Credit(Message, frozen=True, kw_only=True):
    """The host has consumed ``bytes`` payload bytes of a query's runs; as many more may be sent."""

    query: str
    epoch: int
    bytes: int


class Dictionary(Message, frozen=True, kw_only=True):
    """A trained zstd dictionary (the payload) for a field of a query; sent before the first run that uses it."""

    query: str
    field: str
    dictionary_id: int


# ------------------------------------------------------------------------------------------------------ life of a link


class Ping(Message, frozen=True, kw_only=True):
    """Heartbeat of either side; ``sent_s`` is the sender's clock and comes back unchanged."""

    sent_s: float


class Pong(Message, frozen=True, kw_only=True):
    """Answer to a heartbeat, with the answering side's one-minute load average and resident memory.

    ``cpu`` is the use of the CPUs that it may run on since its last answer, in [0, 1]; None from an older host.
    """

    sent_s: float
    load1: float
    rss_bytes: int
    cpu: float | None = None


class Reclaimed(Message, frozen=True, kw_only=True):
    """Sent by the host on the control channel: the provider reclaims its machine in this many seconds."""

    in_s: float


class HostEnding(Message, frozen=True, kw_only=True):
    """Sent by a host whose JVM has ended: the queries that Spark ran then, one of which may have ended it."""

    suspects: tuple[str, ...]


class Shutdown(Message, frozen=True, kw_only=True):
    """The host shall end itself."""


class Bye(Message, frozen=True, kw_only=True):
    """The last frame before the sender closes the link, and why."""

    reason: str


AnyMessage = (
    GatewayHello
    | HostHello
    | HostReady
    | EnrolRequest
    | EnrolProof
    | EnrolGrant
    | Enrolled
    | RenewRequest
    | RenewProof
    | RenewGrant
    | Renewed
    | OpenQuery
    | QueryReady
    | QueryRefused
    | QueryFailed
    | CloseQuery
    | RunMessage
    | IsolatingMessage
    | Completed
    | CommittedMessage
    | Credit
    | Dictionary
    | Ping
    | Pong
    | Reclaimed
    | HostEnding
    | Shutdown
    | Bye
)
