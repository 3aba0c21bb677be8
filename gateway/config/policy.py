"""The config's sections about a query's VMs: how it is switched, and when VMs are launched (docs/policies.md)."""

from __future__ import annotations

import math
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from gateway.config.words.ddl import top_level_columns
from gateway.config.words.fields import Duration, Finding, LongerThanZero, Section, Share, Size, Usd, refuse
from gateway.config.words.units import share_fraction

_WINDOWS_MOST: Final = 120
_DAY_S: Final = 86_400.0
_PARTS_MOST: Final = 64
NOTHING_TO_DECIDE: Final = (
    "has nothing to decide, as switching: {mode: off} keeps all events home; remove one of the two"
)

Cycles = Annotated[tuple[LongerThanZero, ...], Field(max_length=4, examples=[["24h", "168h"]])]
History = Annotated[int, Field(ge=50, le=2000, examples=[1000])]


def _auto_or_share(value: object) -> object:
    return value if value == "auto" else share_fraction(value)


class SwitchingConfig(Section):
    """Which part of a query's events may go to VMs, and at which latencies (ESM, equations 1 and 2).

    Attributes:
        mode: ``auto``: a share of the events of a query without state goes to VMs, and a query with state moves as a
            whole; ``data``: as ``auto``, but a query with state stays at home; ``query``: all events of a query move
            together; ``keys``: the query is divided by ``key``; ``off``: all events stay at home.
        key: of mode ``keys``: the column by which the query is divided (docs/moving-keys.md).
        parts: of mode ``keys``: how many parts.
        share: the part of the events that VMs get, as in ``10%``; ``auto`` controls it.
        start_vm_above_s: L_s: a VM is launched when the latency has been above this for ``tolerance``. Default: 1.2
            times ``qos.latency``.
        send_above_s: L_d: events go to VMs while the latency at home is above this. Default: ``qos.latency``.
        keep_vm_above_s: L_p: a VM is kept for another billing period if the latency is at least this when its period
            ends. Default: half of ``qos.latency``.
        keep_vm_bytes: D_s: a VM is also kept if it got at least this many bytes, before trimming, in its period.
        tolerance_s: tau: for how long the latency must be too high before a VM is launched.
        pause_most_s: a query with state moves to a VM only if its events are then held for no longer than this.
        dry_run: only tell what would be done: the query's events stay home, and it launches no VM.
    """

    mode: Literal["auto", "data", "keys", "query", "off"] = "auto"
    key: str | None = Field(default=None, examples=["customer"])
    parts: int = Field(default=4, ge=2, le=_PARTS_MOST, examples=[8])
    share: Annotated[
        float | Literal["auto"], BeforeValidator(_auto_or_share, json_schema_input_type=Share | Literal["auto"])
    ] = Field(default="auto", examples=["10%"])
    start_vm_above_s: LongerThanZero | None = Field(default=None, alias="start_vm_above")
    send_above_s: LongerThanZero | None = Field(default=None, alias="send_above")
    keep_vm_above_s: Duration | None = Field(default=None, alias="keep_vm_above")
    keep_vm_bytes: Size = 1_000_000
    tolerance_s: Duration = Field(default=1.0, alias="tolerance")
    pause_most_s: LongerThanZero = Field(default=10.0, alias="max_pause")
    dry_run: bool = False

    def findings(self, schema_ddl: str) -> list[Finding]:
        """Return what is wrong with how the query is divided."""
        columns = top_level_columns(schema_ddl)
        if self.mode != "keys":
            needless = [name for name in ("key", "parts") if name in self.model_fields_set]
            return [Finding(key=("switching", name), what="is for mode keys only") for name in needless]
        if self.key not in columns:
            what = "is missing" if self.key is None else f"is {self.key!r}, which is no column of the schema"
            return [Finding(key=("switching", "key"), what=f"{what}: write one of {', '.join(columns)}")]
        return []


class ThresholdsConfig(Section):
    """The switching thresholds with their defaults resolved.

    Attributes:
        start_vm_above_s: L_s; default 1.2 times the latency target.
        send_above_s: L_d; default the latency target.
        keep_vm_above_s: L_p; default half the latency target.
        keep_vm_bytes: D_s.
        tolerance_s: tau.
    """

    start_vm_above_s: float
    send_above_s: float
    keep_vm_above_s: float
    keep_vm_bytes: int
    tolerance_s: float


class ReactivePolicyConfig(Section):
    """Equation 1 of ESM: a VM is launched when the latency is too high, and terminated when it has recovered."""

    type: Literal["reactive"]


class PlannerPolicyConfig(Section):
    """Gaussian processes forecast the input, and the cheapest path through a state graph decides.

    Attributes:
        window_s: length of a window of the plan. Default: half of ``cloud.boot`` or a twelfth of the first billed
            block, whichever is longer, in whole slots.
        horizon_s: how far ahead the plan goes. Default: ``cloud.boot`` and the first billed block.
        history: how many windows are learned from.
        cycles_s: cycles to look for in the input, besides time of day and day of week.
        miss_usd: MC, the cost of a late event. Default: what 20 events cost in the cloud.
        change_usd: RC, the cost of changing the number of VMs. Default: that of a tenth of a billing period.
        most_uncertainty: theta_1: a plan is followed while its cost's standard deviation is at most this part of it.
        most_error: theta_2: a plan is followed while the input is at most this far from the forecast.
    """

    type: Literal["planner"]
    window_s: LongerThanZero | None = Field(default=None, alias="window")
    horizon_s: LongerThanZero | None = Field(default=None, alias="horizon")
    history: History = 500
    cycles_s: Cycles = Field(default=(_DAY_S,), alias="cycles")
    miss_usd: Usd | None = Field(default=None, examples=[0.0001])
    change_usd: Usd | None = Field(default=None, examples=[0.01])
    most_uncertainty: Share = 1.0
    most_error: Share = 0.1


class QueueingPolicyConfig(Section):
    """Queueing theory says how many engines keep a buffer limit at the forecast input.

    Attributes:
        buffer_limit: BL, the most events that wait or are processed. Default: as many as a VM processes within the
            latency target.
        probability: P_required, for which part of the time the limit must be kept.
        ahead_s: TH, how far ahead decisions are made. Default: ``cloud.boot``.
        window_s: the length of a time slice. Default: as for the planner.
        forecast: ``naive`` (as now), ``seasonal`` (as a cycle ago) or ``gp`` (a Gaussian process).
        cycle_s: how long a cycle of the input is, for ``seasonal`` and ``gp``. Default: a day.
        history: how many windows are remembered.
    """

    type: Literal["queueing"]
    buffer_limit: int | None = Field(default=None, ge=1, examples=[5000])
    probability: Share = 0.95
    ahead_s: Duration | None = Field(default=None, alias="ahead")
    window_s: LongerThanZero | None = Field(default=None, alias="window")
    forecast: Literal["naive", "seasonal", "gp"] = "naive"
    cycle_s: LongerThanZero | None = Field(default=None, alias="cycle")
    history: History = 500

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        findings = []
        if not 0 < self.probability < 1:
            what = "must lie between 0% and 100%: no number of VMs always keeps a limit"
            findings.append(Finding(key=("probability",), what=what))
        if self.cycle_s is not None and self.forecast == "naive":
            what = "a naive forecast has no cycle; choose forecast: seasonal or gp, or remove cycle"
            findings.append(Finding(key=("cycle",), what=what))
        refuse(findings)
        return self

    @property
    def season_s(self) -> float:
        """Return the cycle; a day by default."""
        return _DAY_S if self.cycle_s is None else self.cycle_s


class AutoPolicyConfig(Section):
    """All rules run beside each other on what was seen, and the one that costs least is followed.

    Attributes:
        miss_usd: what a late event costs. Default: what 20 events cost in the cloud.
    """

    type: Literal["auto"]
    miss_usd: Usd | None = Field(default=None, examples=[0.0001])


class CpuPolicyConfig(Section):
    """One VM more above a CPU use, one fewer below another.

    Attributes:
        start_above: mean CPU use of the engines above which one more is wanted.
        stop_below: the same below which one fewer is wanted.
        window_s: time frame; two of them are looked at. Default: as for the planner.
    """

    type: Literal["cpu"]
    start_above: Share = 0.7
    stop_below: Share = 0.5
    window_s: LongerThanZero | None = Field(default=None, alias="window")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.stop_below >= self.start_above:
            what = (
                f"stop_below ({self.stop_below:.0%}) must be below start_above ({self.start_above:.0%}): "
                "otherwise a VM would be wanted again as soon as it is terminated"
            )
            refuse([Finding(key=("stop_below",), what=what)])
        return self


class StaticPolicyConfig(Section):
    """Always the same number of VMs.

    Attributes:
        vms: how many VMs there are.
    """

    type: Literal["static"]
    vms: int = Field(ge=0, le=1000, examples=[2])


class LookaheadPolicyConfig(Section):
    """The latency that will be there when a VM that is launched now serves, computed from what is measured now."""

    type: Literal["lookahead"]


PolicyConfig = Annotated[
    ReactivePolicyConfig
    | LookaheadPolicyConfig
    | AutoPolicyConfig
    | PlannerPolicyConfig
    | QueueingPolicyConfig
    | CpuPolicyConfig
    | StaticPolicyConfig,
    Field(discriminator="type"),
]


def default_window_s(slot_s: float, boot_s: float, first_block_s: float) -> float:
    """Return the window of a plan: half a boot or a twelfth of the first billed block, in whole slots."""
    return slot_s * math.ceil(max(slot_s, boot_s / 2, first_block_s / 12) / slot_s - 1e-9)


def policy_findings(
    policy: PolicyConfig, *, mode: str, slot_s: float, boot_s: float, first_block_s: float, max_vms: int
) -> list[Finding]:
    """Return the problems of a policy together with the rest of the config; keys start at ``policy``."""
    if isinstance(policy, ReactivePolicyConfig):
        return []
    if mode == "off":
        return [Finding(key=("type",), what=NOTHING_TO_DECIDE)]
    if isinstance(policy, LookaheadPolicyConfig | AutoPolicyConfig):
        return []
    if isinstance(policy, StaticPolicyConfig):
        if policy.vms <= max_vms:
            return []
        what = f"{policy.vms} are more than cloud.max_vms ({max_vms}); lower vms or raise max_vms"
        return [Finding(key=("vms",), what=what)]
    if policy.window_s is not None and policy.window_s < slot_s:
        what = f"must not be shorter than gateway.slot ({slot_s:g}s): nothing is measured in between"
        return [Finding(key=("window",), what=what)]
    window_s = default_window_s(slot_s, boot_s, first_block_s) if policy.window_s is None else policy.window_s
    if isinstance(policy, QueueingPolicyConfig):
        return _season_findings(policy, window_s)
    return _horizon_findings(policy, window_s, boot_s, first_block_s) if isinstance(policy, PlannerPolicyConfig) else []


def horizon_s(policy: PlannerPolicyConfig, boot_s: float, first_block_s: float) -> float:
    """Return how far ahead to plan."""
    return boot_s + first_block_s if policy.horizon_s is None else policy.horizon_s


def _horizon_findings(
    policy: PlannerPolicyConfig, window_s: float, boot_s: float, first_block_s: float
) -> list[Finding]:
    ahead_s = horizon_s(policy, boot_s, first_block_s)
    if ahead_s < boot_s + window_s and policy.horizon_s is not None:
        what = (
            f"must be at least {boot_s + window_s:g}s, cloud.boot and a window ({window_s:g}s): "
            "a VM that is launched now serves only after that"
        )
        return [Finding(key=("horizon",), what=what)]
    if ahead_s > _WINDOWS_MOST * window_s:
        what = (
            f"{ahead_s:g}s hold more than {_WINDOWS_MOST} windows of {window_s:g}s, which takes too long to plan; "
            "plan less far ahead or make the window longer"
        )
        return [Finding(key=("window" if policy.horizon_s is None else "horizon",), what=what)]
    return []


def _season_findings(policy: QueueingPolicyConfig, window_s: float) -> list[Finding]:
    if policy.forecast == "seasonal" and not 2 * window_s <= policy.season_s <= 20_000 * window_s:
        what = f"must be 2 to 20000 windows of {window_s:g}s long; change it or the window"
        return [Finding(key=("cycle",), what=what)]
    return []
