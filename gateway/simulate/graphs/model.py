"""The file of ``spillway simulate graph.yaml``: its sections (Higashino et al., CEPSim, III-A and Table I)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from gateway.config.words.fields import (
    Checked,
    Duration,
    Finding,
    LinkRate,
    LongerThanZero,
    Rate,
    Section,
    Size,
    Usd,
)

FOR_MAX_S: Final = 86_400.0
TICKS_MAX: Final = 10_000_000
_MANY: Final = 1000

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
"""A name without dots: a vertex is called GRAPH.VERTEX in results."""
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class VertexSection(Section):
    """What all vertices have.

    Attributes:
        instructions: CPU instructions for an event (ipe).
        queue: the most events in each of its input queues. Default: no limit.
        weight: how many events it may process for each event of a vertex of weight 1.
        vm: where it runs. Default: its graph's VM, or the placement strategy chooses.
    """

    instructions: Positive
    queue: Positive | None = None
    weight: Positive = 1.0
    vm: str | None = None


class BurstSection(Checked):
    """Bursts of a producer.

    Attributes:
        every_s: from the beginning of one burst to that of the next.
        for_s: how long a burst lasts.
        times: by which the rate is multiplied in a burst.
    """

    every_s: LongerThanZero = Field(alias="every")
    for_s: Duration = Field(alias="for")
    times: NotNegative

    CHECKS: ClassVar = (("_fits", ("every_s", "for_s")),)

    def _fits(self) -> list[Finding]:
        return [] if self.for_s <= self.every_s else [Finding(key=("for",), what="is longer than every; shorten it")]


class ProducerSection(VertexSection):
    """A source of events. Those for which its queue has no room are dropped and counted.

    Attributes:
        rate_per_s: events a second.
        arrivals: ``even``, or ``poisson``: at random with this mean.
        rises_over_s: how long the rate rises from 0 to ``rate`` at the beginning.
        bursts: times with another rate.
    """

    rate_per_s: Rate = Field(alias="rate")
    arrivals: Literal["even", "poisson"] = "even"
    rises_over_s: Duration = Field(default=0.0, alias="rises_over")
    bursts: BurstSection | None = None


class OperatorSection(VertexSection):
    """A vertex without state, such as a filter: the selectivities of its edges say what it passes on."""


class WindowSection(VertexSection):
    """A window over time.

    Attributes:
        size_s: the time from which its events are.
        advance_s: by which it slides. Default: ``size``.
        results: how many events each window emits that is not empty.
        results_per_event: how many events it emits for each event in the window.
    """

    size_s: LongerThanZero = Field(alias="size")
    advance_s: LongerThanZero | None = Field(default=None, alias="advance")
    results: NotNegative | None = None
    results_per_event: NotNegative | None = None


class JoinSection(VertexSection):
    """A join of the events of all its predecessors.

    Attributes:
        window_s: how far apart the events of a tuple may be.
        reduction: the part of all possible tuples that satisfies the condition.
    """

    window_s: LongerThanZero = Field(alias="window")
    reduction: NotNegative


class ConsumerSection(VertexSection):
    """The end of a query, where latency and throughput are measured."""


class EdgeSection(Section):
    """A stream between two vertices.

    Attributes:
        origin: the vertex that sends.
        target: the vertex that receives.
        selectivity: events on this edge for each event that ``from`` emits.
        event_bytes: size of an event on a network.
    """

    origin: str = Field(alias="from")
    target: str = Field(alias="to")
    selectivity: NotNegative = 1.0
    event_bytes: Size = Field(default=0, alias="event")


class GraphSection(Section):
    """One query, a directed graph without cycles.

    Attributes:
        producers: by name.
        operators: by name.
        windows: by name.
        joins: by name.
        consumers: by name.
        edges: all of them.
        vm: where its vertices run. Default: the placement strategy chooses.
    """

    producers: dict[Name, ProducerSection] = Field(min_length=1, max_length=_MANY)
    operators: dict[Name, OperatorSection] = Field(default={}, max_length=_MANY)
    windows: dict[Name, WindowSection] = Field(default={}, max_length=_MANY)
    joins: dict[Name, JoinSection] = Field(default={}, max_length=_MANY)
    consumers: dict[Name, ConsumerSection] = Field(min_length=1, max_length=_MANY)
    edges: list[EdgeSection] = Field(min_length=1, max_length=_MANY)
    vm: str | None = None

    @property
    def vertices(self) -> list[tuple[tuple[str, str], VertexSection]]:
        """Return ((kind, name), section) of each vertex; the kind is the key in the file."""
        kinds = ("producers", "operators", "windows", "joins", "consumers")
        return [((kind, name), section) for kind in kinds for name, section in getattr(self, kind).items()]


class HostSection(Section):
    """A machine of a data centre.

    Attributes:
        mips: million instructions a second of each core.
        cores: how many.
    """

    mips: Positive
    cores: int = Field(default=1, ge=1)


class NetworkSection(Section):
    """A network; messages follow each other on it.

    Attributes:
        delay_s: until a message arrives after its last byte was sent.
        bits_per_s: bandwidth. Default: no limit.
    """

    delay_s: Duration = Field(default=0.0, alias="delay")
    bits_per_s: LinkRate | None = Field(default=None, alias="rate")


class PriceSection(Section):
    """How a data centre bills: VMs in whole periods, at least ``minimum``, and what is sent to others.

    Attributes:
        period_s: the billing period.
        minimum_s: the shortest time that is billed.
        usd_per_gb_sent: for what its VMs send to other data centres.
    """

    period_s: LongerThanZero = Field(alias="period")
    minimum_s: Duration = Field(default=0.0, alias="minimum")
    usd_per_gb_sent: Usd = 0.0


class CentreSection(Section):
    """A data centre.

    Attributes:
        hosts: by name.
        network: between two of its hosts. Default: without delay and limit.
        billing: its billing rules. Default: it costs nothing.
    """

    hosts: dict[Name, HostSection] = Field(min_length=1, max_length=_MANY)
    network: NetworkSection = NetworkSection()
    billing: PriceSection | None = None


class VmSection(Section):
    """A VM. All its cores together execute its vertices, as in CEPSim.

    Attributes:
        datacentre: where it is.
        host: on which host. Default: that with the most free MIPS.
        mips: million instructions a second of each core.
        cores: how many.
        ordered_s: when it is ordered, and billing begins.
        boot_s: from the order until it executes.
        ends_s: when it is terminated. Default: never.
        usd_per_hour: its price; its data centre needs ``billing``.
    """

    datacentre: str
    host: str | None = None
    mips: Positive
    cores: int = Field(default=1, ge=1)
    ordered_s: Duration = Field(default=0.0, alias="ordered")
    boot_s: Duration = Field(default=0.0, alias="boot")
    ends_s: LongerThanZero | None = Field(default=None, alias="ends")
    usd_per_hour: Usd = 0.0


class FailureSection(Section):
    """Failures of one VM, or of a host with all its VMs. What a VM has in memory is lost; events that come wait.

    Attributes:
        vm: the VM that fails.
        host: the host that fails.
        at_s: when it fails, once.
        every_s: the mean time between failures (exponentially distributed), from when it is back.
        back_after_s: how long it is down.
    """

    vm: str | None = None
    host: str | None = None
    at_s: Duration | None = Field(default=None, alias="at")
    every_s: LongerThanZero | None = Field(default=None, alias="every")
    back_after_s: LongerThanZero = Field(alias="back_after")


class GraphsFile(Section):
    """The file.

    Attributes:
        graphs: the queries, by name.
        datacentres: by name; the names of all hosts differ.
        between: the network between two data centres. Default: without delay and limit.
        vms: by name.
        placement: ``queries``: each query goes as a whole to the VM with the least work for its speed; ``vertices``:
            each vertex.
        scheduling: how the instructions of a VM are divided among its vertices: ``weighted`` (CEPSim's default),
            ``dynamic`` or ``work_conserving``.
        failures: of VMs and hosts.
        tick_s: the simulation interval.
        for_s: how long to simulate.
        measure_from_s: latency and throughput leave out what was consumed before.
    """

    graphs: dict[Name, GraphSection] = Field(min_length=1, max_length=_MANY)
    datacentres: dict[Name, CentreSection] = Field(min_length=1, max_length=_MANY)
    between: NetworkSection = NetworkSection()
    vms: dict[Name, VmSection] = Field(min_length=1, max_length=_MANY)
    placement: Literal["queries", "vertices"] = "queries"
    scheduling: Literal["weighted", "dynamic", "work_conserving"] = "weighted"
    failures: list[FailureSection] = Field(default=[], max_length=_MANY)
    tick_s: LongerThanZero = Field(default=0.01, alias="tick")
    for_s: LongerThanZero = Field(default=600.0, alias="for")
    measure_from_s: Duration = Field(default=0.0, alias="measure_from")
