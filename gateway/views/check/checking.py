"""What ``spillway check`` reports of each query: its class and why, what would cross the WAN, codecs, thresholds.

Spark's analysis and its wording are separate, so that the wording can be tested without Spark.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from engines.spark.sparkconf import is_local
from gateway.config import Config, QueryConfig
from gateway.config.models import (
    EventTimeConfig,
    PayloadConfig,
    ThresholdsConfig,
)
from gateway.config.sites import GatewayConfig, PrivateConfig
from gateway.config.words import units
from gateway.hosts.databases import copy_databases
from gateway.hosts.shipping import kept_here, read_tables
from gateway.query.crossing import Crossing, crossing_of
from gateway.query.flow.referring.paths import needs_of, path_of
from gateway.query.flow.run import BATCH_RUNS_MAX
from gateway.query.handover import why_it_stays
from gateway.query.opening import definition_of
from gateway.views.check.conditions import predicate_text
from gateway.views.check.selecting import selections_text
from infra.messages import OpenQuery, OutputMode, QueryPlan
from infra.payload.tablefiles import TableError
from infra.queryplan import STATE_STAYS

if TYPE_CHECKING:
    from engines.query.known import KnownQuery


@dataclass(frozen=True)
class Analysed:
    """Spark's analysis of a query: ``plan`` and ``results``, or why it would not be started (``refusal``).

    ``events`` is the schema of its input; ``files`` are the undeclared tables that it reads from this machine's disk.
    ``tables`` are the declared ones: name, rows, bytes of the files, and bytes that each host is sent. ``overlap`` says
    how much selections overlap in a sample.
    """

    plan: QueryPlan | None = None
    events: pa.Schema = field(default_factory=lambda: pa.schema([]))
    results: pa.Schema | None = None
    refusal: str = ""
    files: tuple[str, ...] = ()
    tables: tuple[tuple[str, int, int, int], ...] = ()
    overlap: str = ""


OverlapOf = Callable[[Config, str, "KnownQuery", Path], str]
"""Says how much the selections of a query overlap in a sample of its files, which may keep something in the folder."""


def analyse(config: Config, begin: Callable[[str], None], overlap_of: OverlapOf) -> dict[str, Analysed]:
    """Plan each query on a Spark session of our own; no query is started.

    Args:
        config: the whole config.
        begin: called with the next step, for a progress display.
        overlap_of: see ``OverlapOf``.

    Raises:
        engines.spark.session.SessionError: Spark cannot be started here.
    """
    from engines.query.known import RefusedError, understand
    from engines.spark.session import build_session, sibling, stop_session
    from engines.spark.sparkconf import equal_everywhere
    from engines.spark.tablefiles import TABLES, count_rows, why_no_tables_there
    from engines.stateful import why_no_state_there
    from engines.streamable import check_streams
    from gateway.config.codepath import code_path_for

    begin("starting Spark to read the queries' plans (some 15 s)")
    workdir = Path(tempfile.mkdtemp(prefix="spillway-check-"))
    spark = config.private.spark
    session = build_session("local[1]", workdir, 1, conf=equal_everywhere(spark.conf))
    found: dict[str, Analysed] = {}
    try:
        for name, query in config.queries.items():
            begin(f"reading the plan of {name}")
            code_path = code_path_for(query.function, config.folder)
            try:
                copies = workdir / "queries" / name
                spec = opening(name, query, code_path, copies)
                copy_databases(name, query.tables, copies, spark.settings)
                read = read_tables(spec.tables)
                spec = kept_here(spec, read, workdir / TABLES)
                understood = understand(session, spec)
                files = check_streams(understood)
                shared = spark.checkpoints is not None
                refusal = why_no_state_there(spark.master, name, understood.plan, shared=shared)
                rows = count_rows(sibling(session), spec.tables, spec.tables_path)
                found[name] = Analysed(
                    understood.plan,
                    understood.input_schema,
                    understood.result_schema,
                    refusal or why_no_tables_there(spark.master, spec.tables),
                    files,
                    tuple((each, rows[each], table.file_bytes, len(table.packed)) for each, table in read.items()),
                    overlap_of(config, name, understood, workdir),
                )
            except (RefusedError, TableError) as error:
                found[name] = Analysed(refusal=str(error))
    finally:
        stop_session(session)
        shutil.rmtree(workdir, ignore_errors=True)
    return found


def opening(name: str, query: QueryConfig, code_path: str, copies: Path) -> OpenQuery:
    """Return the request to a host to analyse a query of the config; ``copies`` has copies of its database tables."""
    most_runs = BATCH_RUNS_MAX if query.part is None else 1
    return msgspec.structs.replace(
        definition_of(name, query, code_path, copies), analyse_only=True, max_batch_runs=most_runs
    )


def explain(query: QueryConfig, found: Analysed, max_vms: int, private: PrivateConfig) -> Iterator[tuple[str, str]]:
    """Yield label and text of each line about a query that Spark accepts.

    Args:
        query: the query's config.
        found: Spark's analysis; must not be a refusal.
        max_vms: from the config's cloud.
        private: the private side.
    """
    plan, spark = found.plan, private.spark
    if plan is None:
        raise ValueError("a refused query has nothing to explain")
    crossing = crossing_of(query.payload, plan, found.events)
    away = goes_away(query, crossing.applied_to(plan) if plan.stateful else plan, max_vms)
    away = away or (f"stays at home: {crossing.reason}" if crossing.reason else "")
    yield "class", class_text(crossing.applied_to(plan))
    yield "data path", data_path_text(query, plan, private)
    how = "all of it moves, with its state" if plan.stateful else f"share {_share_text(query)}"
    if (part := query.part) is not None:
        how = f"share {_share_text(query)}: {part.parts} parts, divided by {part.key}, move with their state"
    yield "switching", away or f"mode {query.switching.mode}, {how}"
    if not away:
        protects = any(query.payload.protected.values())
        yield "columns sent", forms_text(query.payload, crossing) if protects else columns_text(query.payload, plan)
        yield "rows sent", rows_text(query.payload, plan)
        yield "codecs", codecs_text(query.payload)
        yield "thresholds", thresholds_text(query.thresholds)
    if (rule := query.selection_rule) is not None:
        yield "selections", selections_text(rule, plan.selecting)
        if found.overlap:
            yield "overlap", found.overlap
    if plan.stateful:
        yield "output", output_text(query.output.wanted)
    for stream, event_time in query.event_times.items():
        yield f"event time {stream}".strip(), event_time_text(event_time, stateful=plan.stateful)
    yield "order", order_text(query)
    if spark.checkpoints is not None and plan.stateful:
        yield "checkpoints", checkpoints_text(spark.checkpoints, spark.master)
    for table, rows, file_bytes, packed_bytes in found.tables:
        sent = "" if away else f", {units.SIZE.format(packed_bytes)} to each host in clear"
        again = f", new content is looked for every {min(query.refreshed.values()):g} s" if query.refreshed else ""
        yield f"table {table}", f"{rows} rows, {units.SIZE.format(file_bytes)}{sent}{again}"
    if found.files and not is_local(spark.master):
        yield "files", files_text(found.files, spark.master)
    if found.results is not None:
        yield "results", ", ".join(f"{field.name} {field.type}" for field in found.results)


def fail_over_text(gateway: GatewayConfig, query: QueryConfig, *, stateful: bool) -> str:
    """Return whether another gateway of the fleet can continue a query, and what to do if it cannot.

    Args:
        gateway: with a fleet.
        query: the query's config.
        stateful: whether its plan keeps state.
    """
    stays = why_it_stays(query, stateful=stateful)
    if stays:
        return (
            f"refused without this state_dir: {stays}. Keep {gateway.state_dir} on storage that every gateway of fleet "
            f"{gateway.fleet} can reach, or the query waits until this machine is back"
        )
    return f"each gateway of fleet {gateway.fleet} continues it, once this one is silent for {gateway.lease_s:g} s"


def class_text(plan: QueryPlan) -> str:
    """Return the class of the plan, and what prevents a better one."""
    if plan.switch_class == "whole":
        return f"whole, because {plan.reason}"
    if plan.switch_class == "keyed":
        one = f"another {plan.keys[0]}" if len(plan.keys) == 1 else "another value in any of them"
        return f"keyed by {', '.join(plan.keys)}, because {plan.reason}: an event never meets one with {one}"
    if not plan.switchable:
        return f"stateless, but {plan.reason}"
    return f"stateless: any share may go anywhere; {_batching_text(plan)}"


def data_path_text(query: QueryConfig, plan: QueryPlan, private: PrivateConfig) -> str:
    """Return who reads the events that stay at home, and why."""
    path = path_of(private, query, plan)
    if path.name != "reference" or is_local(private.spark.master):
        return str(path)
    return f"{path}, if each executor of {private.spark.master} has {needs_of(query)}"


def _batching_text(plan: QueryPlan) -> str:
    if plan.shares_batches:
        return "several runs share a micro-batch"
    return "one run in each micro-batch, since its plan moves rows"


def goes_away(query: QueryConfig, plan: QueryPlan, max_vms: int) -> str:
    """Return why no event of the query will leave home; empty when events may."""
    if query.switching.mode == "off":
        return "stays at home: mode is off"
    if max_vms == 0:
        return "stays at home: there is no cloud (max_vms is 0)"
    if plan.one_by_one:
        return "stays at home: another place may not have what it reads"
    if plan.stateful and query.switching.mode == "data":
        return "stays at home: it keeps state, so no share of its events can leave; write mode auto, keys or query"
    if plan.stateful:
        return "" if plan.movable else f"stays at home: {STATE_STAYS}"
    return "" if plan.switchable else "stays at home: splitting could change its answer"


def columns_text(payload: PayloadConfig, plan: QueryPlan) -> str:
    """Return which columns cross the WAN."""
    if not payload.trim:
        return "all (trim is off)"
    if plan.needed_schema is None:
        return f"all: {plan.trim_note}"
    needed = pa.ipc.read_schema(pa.py_buffer(plan.needed_schema))
    return ", ".join(_column_text(field) for field in needed) or "none, only the number of rows"


def forms_text(payload: PayloadConfig, crossing: Crossing) -> str:
    """Return which columns of a query with protected fields cross the WAN, and in which form unless in clear."""
    sent = [
        _column_text(column) + ("" if (form := crossing.forms[column.name]) == "clear" else f" ({form})")
        for column in crossing.sent
    ]
    kept = [name for name in payload.private if name not in crossing.forms]
    never = f"; never {', '.join(kept)}" if kept else ""
    return (", ".join(sent) or "none, only the number of rows") + never


def _column_text(field: pa.Field) -> str:
    if not pa.types.is_struct(field.type):
        return str(field.name)
    return f"{field.name}({', '.join(_column_text(inner) for inner in field.type)})"


def rows_text(payload: PayloadConfig, plan: QueryPlan) -> str:
    """Return which rows cross the WAN, and which conditions only Spark evaluates."""
    if not payload.filter:
        return "all (filter is off)"
    taken = " and ".join(predicate_text(predicate) for predicate in plan.predicates)
    note = f" ({plan.trim_note})" if plan.trim_note and plan.needed_schema is not None else ""
    return (f"only where {taken}" if taken else "all") + note


def codecs_text(payload: PayloadConfig) -> str:
    """Return how fields are packed."""
    if payload.compress == "auto":
        return "auto: each field with the codec that costs least, measured while it runs"
    if payload.compress == "none":
        return "none"
    return ", ".join(f"{field} {codec}" for field, codec in payload.compress.items()) + ", all others none"


def thresholds_text(limits: ThresholdsConfig) -> str:
    """Return when VMs are launched, used and terminated."""

    def spell(seconds: float) -> str:
        # 1.2 times a target of 3 s is 3.5999999999999996 s.
        return units.DURATION.format(round(seconds, 6))

    return (
        f"launch a VM above {spell(limits.start_vm_above_s)}, send above {spell(limits.send_above_s)}, "
        f"keep a VM above {spell(limits.keep_vm_above_s)} or if it was sent more than "
        f"{units.SIZE.format(limits.keep_vm_bytes)}; tolerance {spell(limits.tolerance_s)}"
    )


def order_text(query: QueryConfig) -> str:
    """Return in which order results are released."""
    if query.order is None:
        return "off: results are released as they are completed"
    return f"by {query.order.by}; a gap is waited for at most {units.DURATION.format(query.order.flush_s)}"


def output_text(output: OutputMode) -> str:
    """Return which results a query with state emits."""
    match output.mode:
        case "append":
            return "append: each result once, when it cannot change any more"
        case "update":
            by = f"by {', '.join(output.key)}" if output.key else "as the only row"
            return f"update: after each micro-batch the rows that it changed; a row replaces the earlier one {by}"
        case "complete":
            return "complete: after each micro-batch all rows, which replace all earlier ones"


def event_time_text(event_time: EventTimeConfig, *, stateful: bool) -> str:
    """Return which column holds the event time, and what follows from it."""
    if not stateful:
        return f"{event_time.column}, which changes nothing: each event is processed alone"
    lateness = units.DURATION.format(event_time.lateness_s)
    late = "becomes a dead letter" if event_time.late == "dead-letters" else "is dropped"
    return (
        f"{event_time.column}: an event may come up to {lateness} later than newer ones before its windows are closed; "
        f"what comes later than that {late}"
    )


def checkpoints_text(folder: Path, master: str) -> str:
    """Return where the state of a stateful query is, and what has to be true there."""
    if not folder.is_dir():
        return f"{folder}, which does not exist: create it, or mount it, or the query is refused"
    if is_local(master):
        return str(folder)
    return f"{folder}, which each executor of {master} must share: the query is refused if one does not"


def files_text(files: Sequence[str], master: str) -> str:
    """Return which tables executors do not find if only this machine has them."""
    return (
        f"{', '.join(files)} must lie at the same path on each executor of {master}: where it does not, the query "
        "fails with its first event. Put it where all of them read (s3a://, hdfs://, a shared folder)"
    )


def _share_text(query: QueryConfig) -> str:
    share = query.switching.share
    return share if isinstance(share, str) else units.SHARE.format(share)
