"""The config's sections about sites: the gateway itself, the private side, the cloud."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gateway.config.fields import (
    Address,
    AnyPath,
    CpuSet,
    Duration,
    Finding,
    LinkRate,
    LongerThanZero,
    Master,
    QueryName,
    Section,
    Usd,
    not_yet,
    refuse,
)
from gateway.config.rented import Provider, Rented, rented_findings
from gateway.config.s3 import Bucket, Folder


class Api(Section):
    """Where the daemon answers ``spillway status`` and monitoring."""

    listen: Address = "127.0.0.1:8088"

    @property
    def host(self) -> str:
        """Return the host part."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Return the port part; 0 lets the system choose."""
        return int(self.listen.rpartition(":")[2])


class Gateway(Section):
    """The daemon itself.

    Attributes:
        state_dir: run logs, keys and where hosts are found again; one gateway at a time.
        slot_s: time step of the switching functions.
        orphan_after_s: an engine host without a gateway ends itself after this long.
        fleet: a name that one gateway at a time owns, on whatever machine; another waits until it ends.
        object_store: where it is kept who owns the fleet.
    """

    state_dir: AnyPath
    slot_s: LongerThanZero = Field(default=1.0, alias="slot")
    api: Api = Api()
    orphan_after_s: LongerThanZero = Field(default=60.0, alias="orphan_after")
    fleet: QueryName | None = None
    object_store: Bucket | Folder | None = None

    @model_validator(mode="after")
    def _fleet_has_a_store(self) -> Self:
        if self.fleet is not None and self.object_store is None:
            what = "a fleet needs an object_store that its gateways share; add {bucket: NAME} or {folder: PATH}"
            refuse([Finding(key=("object_store",), what=what)])
        if self.fleet is None and self.object_store is not None:
            what = "without a fleet nothing is kept in the object_store; add fleet: NAME, or take object_store away"
            refuse([Finding(key=("fleet",), what=what)])
        return self


class Spark(Section):
    """How Spark is started at home."""

    master: Master = "local[1]"


class Private(Section):
    """The private side.

    Attributes:
        spark: the cluster.
        cpus: pins its engine host to these CPUs.
        standby: keeps a second engine host ready, which goes on in seconds when the first one dies; it costs the memory
            of one more Spark driver.
    """

    spark: Spark = Spark()
    cpus: CpuSet | None = None
    standby: bool = False


class Billing(Section):
    """What the provider asks: whole periods, at least ``minimum``, and traffic sent to a VM."""

    period_s: LongerThanZero = Field(alias="period")
    minimum_s: Duration = Field(alias="minimum")
    usd_per_hour: Usd
    usd_per_gb_sent: Usd


class Budget(Section):
    """What may be spent at most, on VMs and egress; what does not fit is not started and not renewed.

    Hours and days are those of the wall clock in UTC. A block of time counts to the hour and day in which it begins.

    Attributes:
        usd_per_day: by all queries in a day.
        usd_per_hour: by all queries in an hour.
        usd_per_query_day: by each query in a day: its egress, and its part of the VMs that it asked for or kept.
        when_spent: what becomes of events that should have gone to the cloud: they stay home and may be late.
    """

    usd_per_day: Usd
    usd_per_hour: Usd | None = None
    usd_per_query_day: Usd | None = None
    when_spent: Annotated[Literal["stay_home"], not_yet("when_spent", ("stay_home",))] = "stay_home"


class EmulateLink(Section):
    """Shapes the links of process VMs in user space: delay each way, and rate."""

    delay_s: Duration = Field(alias="delay")
    rate_bits_per_s: LinkRate = Field(alias="rate")


class Cloud(Rented):
    """Where machines are rented.

    Attributes:
        max_vms: at most this many at a time.
        boot_s: expected time from the order to ready.
        warm: process provider only: hosts are started beforehand and ``boot`` is emulated.
        emulate_link: process provider only: behave as if the VMs were this far away.
    """

    provider: Provider
    max_vms: int = Field(ge=0, le=1000)
    boot_s: Duration = Field(alias="boot")
    warm: bool = False
    billing: Billing
    budget: Budget
    emulate_link: EmulateLink | None = None

    @model_validator(mode="after")
    def _fits_the_provider(self) -> Self:
        findings = rented_findings(self.provider, self)
        if self.provider != "process":
            for key, given in (("warm", self.warm), ("emulate_link", self.emulate_link is not None)):
                if given:
                    findings.append(Finding(key=(key,), what="is for provider process only; take it away"))
        refuse(findings)
        return self
