"""What the API answers, as models: they make the JSON, and the description of it at ``/openapi.json``."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class AnswerModel(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ProblemAnswer(AnswerModel):
    """Why a request was refused."""

    error: str = Field(description="One sentence: what is wrong, and what to do.")


class DoneAnswer(AnswerModel):
    """What an action did."""

    done: str = Field(description="One sentence.")


class StatusAnswer(AnswerModel):
    """The gateway as a whole."""

    phase: str = Field(description="starting, standby, running or stopping.")
    ready: bool = Field(description="Whether it takes and delivers events.")
    trouble: str = Field(description="Why it does not, although it runs; else empty.")
    version: str
    state_dir: str = Field(description="Tells gateways of one machine apart.")
    at: str = Field(description="Now (UTC).")
    slot_s: float = Field(description="Time step of all decisions.")
    paused: bool = Field(description="Whether an operator paused all decisions.")
    paused_until: str | None = Field(description="When the pause ends by itself (UTC).")
    max_vms: int
    boot_configured_s: float = Field(description="boot of the config: from the order of a VM to ready.")
    boot_expected_s: float = Field(description="The same, as learned from the boots that were seen; decisions use it.")
    boots_seen: int = Field(description="How many boots count; the latest 20, and those that take longer now.")
    config: str = Field(description="The config file.")
    config_refused: str = Field(description="Why the changed config file was not taken in; else empty.")
    queries: dict[str, str] = Field(description="The state of each query.")
    vms: dict[str, str] = Field(description="The state of each VM.")
    memory_held_bytes: int
    memory_limit_bytes: int


class ThresholdsAnswer(AnswerModel):
    """The thresholds of a query, with the symbols of the papers."""

    start_vm_above_s: float = Field(description="L_s: latency from which a VM is launched.")
    send_above_s: float = Field(description="L_d: latency from which events go to VMs.")
    keep_vm_above_s: float = Field(description="L_p: latency from which a VM is kept for another billing period.")
    keep_vm_bytes: int = Field(description="D_s: bytes sent in a billing period from which a VM is kept.")
    tolerance_s: float = Field(description="tau: how long the latency must be above L_s.")
    qos_latency_s: float = Field(description="L_QoS: the promised latency.")


class PinAnswer(AnswerModel):
    """What an operator has pinned."""

    share: float = Field(ge=0, le=1, description="The part of the events that goes to VMs; 0 keeps the query at home.")
    until: str = Field(description="When the pin ends by itself (UTC).")


class QueryAnswer(AnswerModel):
    """One query. Counts and mean latencies are those since the gateway started."""

    name: str
    state: str = Field(description="opening, running, failed or given up.")
    reason: str = Field(description="Why it failed last; empty while it runs.")
    since: str | None = Field(description="Since when it has been failing (UTC).")
    failures: int = Field(description="How many times it failed in a row.")
    opened_again_in_s: float | None
    trouble: str = Field(description="Why it does not take or deliver events now; else empty.")
    mode: str = Field(description="switching.mode of the config.")
    policy: str = Field(description="The policy that decides when VMs are launched and kept.")
    stays_home: str = Field(description="Why it never goes to VMs; else empty.")
    data_path: str = Field(description="Who reads the events that stay at home: gateway or reference.")
    data_path_why: str = Field(description="Why the gateway reads them; else empty.")
    thresholds: ThresholdsAnswer
    pin: PinAnswer | None
    share_to_cloud: float = Field(description="R: the part of its events that goes to VMs.")
    latency_s: float = Field(description="L: the latency that the thresholds were compared with in the last slot.")
    processing_s: float = Field(description="Mean processing latency: completion of a run minus its arrival.")
    delivery_s: float = Field(description="Mean delivery latency: release to the sink minus arrival.")
    events: int
    results: int
    late_results: int
    shed_events: int
    shed_share: float
    too_late_rows: int
    out_of_order_events: int
    dead_letters: int
    raw_bytes: int = Field(description="Bytes of the runs for VMs, before trimming and compression.")
    sent_bytes: int = Field(description="Bytes that were sent for them.")
    events_by_lane: dict[str, int]
    direct_events: int = Field(
        description="Those of home that Spark has read and delivered by itself, as far as it has told."
    )
    open_groups: int | None
    kept_state: dict[str, Any] | None = Field(description="Where its state is, and how often it moved.")


class QueriesAnswer(AnswerModel):
    """All queries; none before the gateway runs."""

    queries: list[QueryAnswer]


class LaneAnswer(AnswerModel):
    """One lane of a query: home, or a VM."""

    query: str
    lane: str
    share: float = Field(description="The part of the query's events that goes to it.")
    open_runs: int
    events: int
    rate_per_s: float | None = Field(description="Measured service rate: events per second while it works.")
    codecs: dict[str, str] = Field(description="How the columns are compressed.")
    round_trip_s: float | None
    goodput_bytes_per_s: float | None
    loss: float | None
    link_sent_bytes: int
    link_received_bytes: int


class LanesAnswer(AnswerModel):
    """All lanes of all queries."""

    lanes: list[LaneAnswer]


class StoryAnswer(AnswerModel):
    """One event in the life of a VM."""

    at: str
    happened: str
    state: str
    why: str


class VmAnswer(AnswerModel):
    """One VM that lives."""

    name: str
    state: str
    period_since: str = Field(description="When the billing period began that is paid for (UTC).")
    period_until: str = Field(description="When the next period begins (UTC).")
    reclaimed_at: str | None = Field(description="When the provider takes it back, if the provider said so (UTC).")
    billed_s: float
    used_s: float
    usd: float
    sent_bytes: int
    received_bytes: int
    queries: list[str] = Field(description="The queries whose events go to it.")
    story: list[StoryAnswer] = Field(description="What happened to it and why; the newest last.")


class VmsAnswer(AnswerModel):
    """All VMs that live."""

    vms: list[VmAnswer]


class BillAnswer(AnswerModel):
    """What one VM has cost."""

    vm: str
    billed_s: float
    used_s: float
    unused_s: float
    sent_bytes: int
    received_bytes: int
    usd: float


class QuotaAnswer(AnswerModel):
    """What the gateway may use of the quota that it shares with others."""

    vms: int = Field(description="VMs that may live at a time.")
    usd_today: float | None = Field(
        description="Money for this UTC day; None means that the quota has no limit of money."
    )
    why: str = Field(description="Why it does not get what it needs; else empty.")


class CostsAnswer(AnswerModel):
    """The money. Days are UTC days; None means no limit."""

    usd_per_day: float | None
    usd_per_hour: float | None
    usd_per_query_day: float | None
    spent_today_usd: float
    spent_today_by_query_usd: dict[str, float]
    reserved_usd: float = Field(description="Set aside for the billing periods of VMs that live.")
    left_usd: float | None = Field(description="What may still be reserved now.")
    limit_reached: str = Field(description="Which limit is reached next at the present rate; else empty.")
    limit_reached_in_s: float | None
    trouble: str = Field(description="Why no more money is reserved; else empty.")
    quota: QuotaAnswer | None = Field(description="None without a quota.")
    usd: float = Field(description="All VMs of this gateway since it started.")
    billed_s: float
    used_s: float
    bills: list[BillAnswer] = Field(description="The last hundred VMs, and those that live.")


class DecisionAnswer(AnswerModel):
    """The decision about one query in one slot, in sentences."""

    at: str
    wall_s: float = Field(description="The same in seconds since 1970.")
    query: str
    verdict: str = Field(description="What was decided.")
    done: list[str] = Field(description="What was done, and why.")
    why: list[str] = Field(description="What was measured and expected, and what the policy wanted.")
    why_not: list[str] = Field(description="What else there was, and why it was not done.")


class DecisionsAnswer(AnswerModel):
    """Decisions, the newest first."""

    decisions: list[DecisionAnswer]


class LetterAnswer(AnswerModel):
    """One dead letter."""

    position: int = Field(description="Where it begins in the file of the query's dead letters: names it until then.")
    reason: str
    at: str
    source: str = Field(description="Where it came from: its record, its seq, or its place in the source.")
    content: str = Field(description="The event or the record; at most 64 KiB of it.")
    encoding: str = Field(description="text, or base64 for content that is no text.")
    complete: bool = Field(description="Whether the content is complete.")


class LettersAnswer(AnswerModel):
    """Some dead letters of a query, the oldest first."""

    count: int = Field(description="How many there are.")
    letters: list[LetterAnswer]
    next: int | None = Field(description="Continue with after=NEXT; None at the end.")


class CountAnswer(AnswerModel):
    """How many dead letters an action concerned."""

    count: int
