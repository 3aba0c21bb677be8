"""The messages between the gateway and an engine host, independent of the transport.

Each message is a small struct; bulk data (a run's rows, a result's rows, a dictionary) travels beside it as the
payload of the same frame. The two channels of a link are two connections: ``control`` (greeting, queries, credit,
heartbeats) never waits behind ``data`` (runs, results, dictionaries).
"""

from __future__ import annotations

from infra.messages.base import PROTOCOL as PROTOCOL
from infra.messages.base import ChannelName as ChannelName
from infra.messages.base import Message as Message
from infra.messages.direct import CHECKPOINT_S as CHECKPOINT_S
from infra.messages.direct import DirectFlow as DirectFlow
from infra.messages.direct import DirectProgress as DirectProgress
from infra.messages.direct import OffsetAt as OffsetAt
from infra.messages.direct import direct_name as direct_name
from infra.messages.naming import NAME_HEADERS as NAME_HEADERS
from infra.messages.naming import NAME_OFFSET as NAME_OFFSET
from infra.messages.naming import NAME_PARTITION as NAME_PARTITION
from infra.messages.naming import NAME_TOPIC as NAME_TOPIC
from infra.messages.naming import NAMES as NAMES
from infra.messages.naming import NAMES_DDL as NAMES_DDL
from infra.messages.queries import APPEND as APPEND
from infra.messages.queries import HEARTBEAT as HEARTBEAT
from infra.messages.queries import CloseQuery as CloseQuery
from infra.messages.queries import EventStream as EventStream
from infra.messages.queries import EventTime as EventTime
from infra.messages.queries import KeyPart as KeyPart
from infra.messages.queries import OpenQuery as OpenQuery
from infra.messages.queries import OutputMode as OutputMode
from infra.messages.queries import QueryFailed as QueryFailed
from infra.messages.queries import QueryReady as QueryReady
from infra.messages.queries import QueryRefused as QueryRefused
from infra.messages.queries import TablePart as TablePart
from infra.messages.reading import BrokerAccess as BrokerAccess
from infra.messages.reading import BucketPlace as BucketPlace
from infra.messages.reading import FileRange as FileRange
from infra.messages.reading import FileReading as FileReading
from infra.messages.reading import KafkaReading as KafkaReading
from infra.messages.reading import OffsetRange as OffsetRange
from infra.messages.reading import Range as Range
from infra.messages.reading import Reading as Reading
from infra.messages.reading import RecordFormat as RecordFormat
from infra.messages.runs import CommittedMessage as CommittedMessage
from infra.messages.runs import Completed as Completed
from infra.messages.runs import Credit as Credit
from infra.messages.runs import Dictionary as Dictionary
from infra.messages.runs import IsolatingMessage as IsolatingMessage
from infra.messages.runs import Poison as Poison
from infra.messages.runs import RunMessage as RunMessage
from infra.messages.selecting import POSITION as POSITION
from infra.messages.selecting import SELECTION as SELECTION
from infra.messages.selecting import SELECTIONS as SELECTIONS
from infra.messages.selecting import Pattern as Pattern
from infra.messages.selecting import PatternStep as PatternStep
from infra.messages.selecting import SelectionRule as SelectionRule
from infra.messages.session import Bye as Bye
from infra.messages.session import EnrolGrant as EnrolGrant
from infra.messages.session import Enrolled as Enrolled
from infra.messages.session import EnrolProof as EnrolProof
from infra.messages.session import EnrolRequest as EnrolRequest
from infra.messages.session import GatewayHello as GatewayHello
from infra.messages.session import HostEnding as HostEnding
from infra.messages.session import HostHello as HostHello
from infra.messages.session import HostReady as HostReady
from infra.messages.session import Ping as Ping
from infra.messages.session import Pong as Pong
from infra.messages.session import Reclaimed as Reclaimed
from infra.messages.session import Renewed as Renewed
from infra.messages.session import RenewGrant as RenewGrant
from infra.messages.session import RenewProof as RenewProof
from infra.messages.session import RenewRequest as RenewRequest
from infra.messages.session import Shutdown as Shutdown
from infra.messages.state import FetchState as FetchState
from infra.messages.state import InstallState as InstallState
from infra.messages.state import ListState as ListState
from infra.messages.state import OfferState as OfferState
from infra.messages.state import StateEnd as StateEnd
from infra.messages.state import StateMessage as StateMessage
from infra.messages.state import StatePart as StatePart
from infra.messages.state import StateReply as StateReply
from infra.messages.state import state_folder as state_folder
from infra.queryplan import STREAM as STREAM
from infra.queryplan import ColumnUse as ColumnUse
from infra.queryplan import Predicate as Predicate
from infra.queryplan import PredicateOp as PredicateOp
from infra.queryplan import QueryPlan as QueryPlan
from infra.queryplan import StaticTable as StaticTable
from infra.queryplan import SwitchClass as SwitchClass

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
    | DirectProgress
    | CloseQuery
    | OfferState
    | InstallState
    | ListState
    | FetchState
    | StatePart
    | StateEnd
    | StateReply
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
