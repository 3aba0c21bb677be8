"""The messages between the gateway and an engine host, independent of the transport.

Each message is a small struct; bulk data (a run's rows, a result's rows, a dictionary) travels beside it as the
payload of the same frame. The two channels of a link are two connections: ``control`` (greeting, queries, credit,
heartbeats) never waits behind ``data`` (runs, results, dictionaries).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from infra.queryplan import ColumnUse as ColumnUse
from infra.queryplan import Predicate as Predicate
from infra.queryplan import PredicateOp as PredicateOp
from infra.queryplan import QueryPlan as QueryPlan
from infra.queryplan import StaticTable as StaticTable
from infra.queryplan import SwitchClass as SwitchClass
from infra.runtime import Runtime

PROTOCOL = 2

ChannelName = Literal["control", "data"]


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of every message; its tag on the wire is the struct's name unless it sets another."""


# ------------------------------------------------------------------------------------------------------------ greeting


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


# ----------------------------------------------------------------------------------------------------------- enrolment


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


# -------------------------------------------------------------------------------------------------------------- queries


class EventTime(msgspec.Struct, frozen=True, kw_only=True):
    """The column that holds the event time, and how many ms later than newer events an event may come."""

    column: str
    lateness_ms: int


class OpenQuery(Message, frozen=True, kw_only=True):
    """Open a query on a host.

    Attributes:
        query: name from the config.
        epoch: counts how often gateways opened this query; answers of other epochs are ignored.
        schema_ddl: the input's schema as Spark DDL.
        sql: SQL over the view ``events``; or
        function: ``package.module:name``, DataFrame -> DataFrame.
        event_time: the watermark of the view ``events``; None: the query sets its own, or needs none.
        code_path: the user's folder, put on the module path for ``function``; or empty.
        code_hash: sha256 of the query as the gateway knows it (see ``engines.query.code``); a host that computes
            another hash refuses.
        checkpoint_dir: where a stateful query keeps its state on this host; empty for a temporary folder.
        begin_seq: the seq at which a stateful query without a checkpoint begins.
        max_batch_runs: at most this many runs in one micro-batch.
        batch_ends: where the first micro-batches after the checkpoint of a stateful query have to end (seq, exclusive),
            because the sink has results of micro-batches with these limits already.
        result_codec: how results are packed: ``none`` or ``zstd``.
        bad_rows_most: the query is broken as soon as more of 1,000 consecutive rows fail; 0: never.
        shares_host: other queries run on the host: this one ends there as soon as it exhausts the host's memory.
        analyse_only: only plan and schemas are wanted; no query is started.
        tables: what it reads besides the events; their versions arrive as ``TablePart`` before or after this message.
        tables_path: the folder of the versions; the host fills it in.
    """

    query: str
    epoch: int
    schema_ddl: str
    sql: str = ""
    function: str = ""
    event_time: EventTime | None = None
    code_path: str = ""
    code_hash: str = ""
    checkpoint_dir: str = ""
    begin_seq: int = 0
    max_batch_runs: int = 16
    batch_ends: tuple[int, ...] = ()
    result_codec: Literal["none", "zstd"] = "none"
    bad_rows_most: int = 0
    shares_host: bool = False
    analyse_only: bool = False
    tables: tuple[StaticTable, ...] = ()
    tables_path: str = ""


class TablePart(Message, frozen=True, kw_only=True):
    """A part of a version of a static table (the payload); the parts follow each other on the data channel.

    Attributes:
        fingerprint: of the version.
        offset: where the part begins.
        packed_bytes: the length of all parts together.
        raw_bytes: the length when it is unpacked.
    """

    fingerprint: str
    offset: int
    packed_bytes: int
    raw_bytes: int


class QueryReady(Message, frozen=True, kw_only=True):
    """The query is open and warm.

    Attributes:
        input_schema: Arrow schema (serialised) that Spark derives from the DDL; frames use exactly this schema.
        result_schema: Arrow schema (serialised) of the results.
        plan: properties of Spark's plan.
        credit_bytes: how many payload bytes may be sent to this host before it has consumed them.
        resume_seq: for a stateful query, the next seq after its checkpoint; else 0.
        resume_end_seq: for a stateful query whose last micro-batch was planned but not committed, the end (exclusive)
            of that batch, which will run again with exactly these limits; else equal to ``resume_seq``.
        removed_tables: the versions of static tables that the host has removed, since no query reads them any more.
    """

    query: str
    epoch: int
    input_schema: bytes
    result_schema: bytes
    plan: QueryPlan
    credit_bytes: int
    resume_seq: int = 0
    resume_end_seq: int = 0
    removed_tables: tuple[str, ...] = ()


class QueryRefused(Message, frozen=True, kw_only=True):
    """The query cannot be opened here, and why."""

    query: str
    epoch: int
    reason: str


class QueryFailed(Message, frozen=True, kw_only=True):
    """An open query failed for good; its open runs must be dispatched elsewhere.

    ``broken`` says that the query itself is at fault, not this host: it would fail on every other host, too.
    ``exhausted`` says that it exhausted the memory of a host that it shares: it must run on a host of its own.
    """

    query: str
    epoch: int
    reason: str
    broken: bool = False
    exhausted: bool = False


class CloseQuery(Message, frozen=True, kw_only=True):
    """Stop a query; runs that are not completed will not be."""

    query: str
    epoch: int


# ----------------------------------------------------------------------------------------------------------------- data


class RunMessage(Message, frozen=True, kw_only=True, tag="Run"):
    """A run on its way to a host; the payload is its encoded rows (``infra.payload``).

    ``rows`` counts the rows in the payload; early predicates may have removed some of the seq range.
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
    """A run failed in its micro-batch, and the host looks for the rows at fault while the query's next runs go on.

    The time that this takes says nothing about the host's speed.
    """

    query: str
    epoch: int
    first_seq: int


class Completed(Message, frozen=True, kw_only=True):
    """The answer to a run, or for a stateful query to a contiguous range of runs; the payload is the encoded results.

    ``batch_id`` numbers the host's micro-batches; ``batch_s`` is how long the micro-batch took. Of a stateful query,
    ``too_late`` rows (in an aggregation: groups) were behind the watermark and dropped, and with a watermark
    ``open_groups`` rows of state wait for it.
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
    too_late: int = 0
    open_groups: int | None = None


class CommittedMessage(Message, frozen=True, kw_only=True, tag="Committed"):
    """The sink holds every result of a stateful query up to and including ``last_seq``: its checkpoint may advance."""

    query: str
    epoch: int
    last_seq: int


class Credit(Message, frozen=True, kw_only=True):
    """The host has consumed ``bytes`` payload bytes of a query's runs; the gateway may send as many more."""

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
    | TablePart
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
