"""The world of a config: its queries with the events of a trace, its hosts, links and VMs."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engines.simulated.generators import RecordedRates
from gateway.config import Config
from gateway.config.settings import lone_settings
from gateway.query.flow.run import BATCH_RUNS_MAX
from gateway.simulate.configload import configured_load
from gateway.simulate.options import LEAST_RUN_S, Faults, Machines, QueryOptions, WorldOptions
from gateway.simulate.parameters.calibration import Calibration, Measured
from gateway.simulate.sizes import VmSize
from policies.switching.query import QuerySettings

_COLUMNS = ("at_s", "query", "events", "bytes")


class TraceError(ValueError):
    """A trace cannot be read, or does not fit the config."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The events of one query in a trace; ``event_bytes`` is their mean size."""

    load: RecordedRates
    last_s: float
    event_bytes: int


def read_trace(path: Path) -> dict[str, Recorded]:
    """Read a CSV file with the columns at_s, query, events and bytes: arrivals since the previous line, in any order.

    Raises:
        TraceError: it is not such a file.
    """
    lines: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != _COLUMNS:
                raise TraceError(f"{path}: the first line must be {','.join(_COLUMNS)}")
            for row in reader:
                lines[row["query"]].append(_line(path, reader.line_num, row))
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path} cannot be read: {error}") from None
    return {query: _recorded(sorted(of_query)) for query, of_query in lines.items()}


def _line(path: Path, number: int, row: Mapping[str, str]) -> tuple[float, float, float]:
    try:
        at_s, events, size = float(row["at_s"]), float(row["events"]), float(row["bytes"])
    except (TypeError, ValueError):
        raise TraceError(f"{path}, line {number}: at_s, events and bytes must be numbers") from None
    if not (0 <= at_s < 1e9 and 0 <= events < 1e12 and 0 <= size < 1e18):
        raise TraceError(f"{path}, line {number}: at_s, events and bytes must be finite and not negative")
    return at_s, events, size


def _recorded(lines: Sequence[tuple[float, float, float]]) -> Recorded:
    events = sum(count for _, count, _ in lines)
    size = sum(size for _, _, size in lines)
    load = RecordedRates([at_s for at_s, _, _ in lines], [count for _, count, _ in lines])
    return Recorded(load, lines[-1][0], round(size / events) if events else 0)


def plan(
    config: Config,
    *,
    served_per_s: float | None,
    for_s: float,
    seed: int,
    trace: Mapping[str, Recorded] | None = None,
    stays_home: Collection[str] = (),
    calibration: Calibration | None = None,
    begins_wall_s: float = 0.0,
) -> WorldOptions:
    """Return the world of a config.

    Args:
        config: as for the daemon.
        served_per_s: events per second of one engine host, for queries that were not measured.
        for_s: how long events arrive, if there is no trace.
        seed: of boot times and, without a trace, of arrivals.
        trace: the events of each query; other queries get the rate or the profile of the config's replay.
        stays_home: queries that may not be split; the daemon gets this from Spark's plans, which are not available
            here.
        calibration: measurements of queries, of VMs and of boot times, and what goes wrong.
        begins_wall_s: when it begins, in seconds since 1970.

    Raises:
        TraceError: the trace, the calibration or ``stays_home`` names an unknown query, or a query has neither a trace
            nor a rate, or no rate of a host; or the calibration names an unknown size.
    """
    measured = {} if calibration is None else calibration.queries
    for name in (*(trace or {}), *measured, *stays_home):
        if name not in config.queries:
            raise TraceError(f'there is no query "{name}"; the queries of the config are {", ".join(config.queries)}')
    for name in config.queries:
        if served_per_s is None and name not in measured:
            raise TraceError(f"the rate of a host for query {name} is unknown: give --served, or measure it")
    scheduler = lone_settings(config)
    scheduler = replace(
        scheduler,
        queries=tuple(replace(query, switchable=query.name not in stays_home) for query in scheduler.queries),
    )
    queries = tuple(
        _query(config, (trace or {}).get(settings.name), settings, measured.get(settings.name))
        for settings in scheduler.queries
    )
    link = config.cloud.emulate_link
    machines = Machines() if served_per_s is None else Machines(events_per_s=served_per_s)
    if link is not None:
        machines = replace(machines, link_delay_s=link.delay_s, link_bytes_per_s=link.bytes_per_s)
    prices = config.cloud.size_prices
    sizes = tuple(VmSize(size, prices.get(size)) for size in config.cloud.sizes)
    machines = replace(machines, sizes=sizes)
    faults = Faults()
    if calibration is not None:
        _check_sizes(config, calibration.faults.sold_out)
        machines = replace(machines, vm_speed=calibration.vm_speed)
        faults = calibration.faults.faults
        if calibration.boot is not None:
            machines = replace(machines, boot=calibration.boot.times())
    load_s = for_s if trace is None else max((of.last_s for of in trace.values()), default=0.0) + 1.0
    return WorldOptions(
        seed=seed,
        scheduler=scheduler,
        queries=queries,
        machines=machines,
        faults=faults,
        load_s=load_s,
        rest_s=max(86_400.0, 100 * load_s),
        begins_wall_s=begins_wall_s,
    )


def _query(
    config: Config, recorded: Recorded | None, settings: QuerySettings, measured: Measured | None
) -> QueryOptions:
    name = settings.name
    query = config.queries[name]
    order = query.order
    load = configured_load(config, name) if recorded is None else recorded.load
    if load is None:
        raise TraceError(f"the config does not say how many events query {name} gets: give a trace")
    shape = QueryOptions(settings=settings, load=load)
    event_bytes = _event_bytes(recorded, measured) or shape.event_bytes
    divided = query.switching.mode == "keys"
    return replace(
        shape,
        stateful=divided,
        parts=query.switching.parts if divided else 0,
        statistic=query.qos.statistic,
        poisson=recorded is None,
        run_s=max(query.runs.linger_s, LEAST_RUN_S),
        run_events=max(1, min(query.runs.max_events, query.runs.max_bytes // event_bytes)),
        event_bytes=event_bytes,
        sent_part=shape.sent_part if measured is None or measured.sent_part is None else measured.sent_part,
        flush_s=None if order is None else order.flush_s,
        ordered=order is not None,
        batch_s=None if measured is None else measured.batch_s,
        further_run_s=0.0 if measured is None else measured.run_s,
        batch_runs=BATCH_RUNS_MAX if measured is None else measured.batch_runs,
        event_s=None if measured is None else measured.event_s,
    )


def _check_sizes(config: Config, sold_out: Collection[str]) -> None:
    sizes = config.cloud.sizes
    for size in sold_out:
        if size not in sizes:
            known = f"the sizes are {', '.join(sizes)}" if sizes else "the config has no cloud.sizes"
            raise TraceError(f'faults.sold_out: there is no size "{size}"; {known}')


def sent_text(world: WorldOptions, calibration: Calibration) -> str:
    """Return which part of the raw bytes crosses the WAN if all events go to VMs, and how that is known.

    Args:
        world: the plan of a config; queries that may not be split are left out.
        calibration: with which it was made.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for query in world.queries:
        if query.settings.switchable:
            name = query.settings.name
            found[f"{query.sent_part:.1%} ({_known_by(calibration.queries.get(name))})"].append(name)
    if len(found) == 1:
        return f"WAN bytes: {next(iter(found))} of the raw bytes"
    parts = "; ".join(f"{', '.join(names)}: {text}" for text, names in found.items())
    return f"WAN bytes, of the raw bytes: {parts or 'none, since no query may be split'}"


def _known_by(measured: Measured | None) -> str:
    if measured is None or measured.sent_part is None:
        return "assumed"
    return "given" if measured.sent_from is None else "measured by profile"


def _event_bytes(recorded: Recorded | None, measured: Measured | None) -> int:
    """Return the mean size of an event, if it was measured; else 0."""
    if recorded is not None:
        return recorded.event_bytes
    return 0 if measured is None else round(measured.event_bytes)
