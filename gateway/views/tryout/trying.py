"""Tries queries over samples of their events, on a Spark of our own that works in a folder which is removed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from engines.isolation.atonce import evaluate
from engines.isolation.isolate import BrokenError
from engines.query.known import KnownQuery, RefusedError, understand
from engines.spark.session import build_session, stop_session
from engines.spark.sparkconf import equal_everywhere
from engines.spark.tablefiles import TABLES
from engines.streamable import check_streams
from gateway.config import Config, QueryConfig
from gateway.config.codepath import code_path_for
from gateway.config.words import units
from gateway.hosts.databases import copy_databases
from gateway.hosts.shipping import kept_here, read_tables
from gateway.query.flow.selecting.selector import HeldTooMuchError
from gateway.views.check.checking import opening
from gateway.views.tryout.overlap import in_selections
from gateway.views.tryout.sampling import Sample, SampleError, read_sample, why_no_sample
from infra.clock import SystemClock
from infra.messages import OpenQuery
from infra.payload.tablefiles import TableError


@dataclass(frozen=True)
class Tried:
    """A query that was tried.

    Attributes:
        query: its name.
        sample: the events.
        results: all rows of the result.
        bad: why the query fails over an event, by the event's number in the sample, from 0.
        notes: in which way the results may differ from those of a running gateway.
    """

    query: str
    sample: Sample
    results: pa.Table
    bad: Mapping[int, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotTried:
    """A query that could not be tried.

    Attributes:
        query: its name.
        why: the reason, and what to do.
        refused: whether the query is at fault, and ``run`` would not open it.
    """

    query: str
    why: str
    refused: bool


def try_queries(
    config: Config,
    names: Sequence[str],
    given: Mapping[str, Path],
    most: int,
    begin: Callable[[str], None],
) -> Iterator[Tried | NotTried]:
    """Yield the outcome for each query.

    Args:
        config: the whole config.
        names: the queries.
        given: files to read in place of sources, by stream.
        most: so many records of each source at most.
        begin: called with the next step, for a progress display.

    Raises:
        engines.spark.session.SessionError: Spark cannot be started here.
    """
    missing = {name: why for name in names if (why := why_no_sample(config, name, given))}
    yield from (NotTried(name, f"query {name}: {why}", refused=False) for name, why in missing.items())
    left = [name for name in names if name not in missing]
    if not left:
        return
    begin("starting Spark (some 15 s)")
    workdir = Path(tempfile.mkdtemp(prefix="spillway-try-"))
    session = build_session("local[1]", workdir, 1, conf=equal_everywhere(config.private.spark.conf))

    def understood(spec: OpenQuery) -> KnownQuery:
        check_streams(understand(session, spec))
        # The parts of a divided query together give what the undivided one gives.
        return understand(session, msgspec.structs.replace(spec, part=None))

    try:
        for name in left:
            begin(f"trying {name}")
            try:
                known = understood(_spec(config, name, workdir))
                yield try_known(config, known, given, most, workdir)
            except (RefusedError, TableError) as error:
                yield NotTried(name, str(error), refused=True)
    finally:
        stop_session(session)
        shutil.rmtree(workdir, ignore_errors=True)


def _spec(config: Config, name: str, workdir: Path) -> OpenQuery:
    query = config.queries[name]
    copies = workdir / "queries" / name
    spec = opening(name, query, code_path_for(query.function, config.folder), copies)
    copy_databases(name, query.tables, copies, config.private.spark.settings)
    return kept_here(spec, read_tables(spec.tables), workdir / TABLES)


def try_known(
    config: Config, known: KnownQuery, given: Mapping[str, Path], most: int, workdir: Path
) -> Tried | NotTried:
    """Try a query that Spark has analysed; see ``try_queries``."""
    name = known.spec.query
    try:
        sample = read_sample(config, name, known.input_schema, given, workdir / "sources" / name, most)
        rows, events, overlap = in_selections(known, sample.events)
        results, bad_rows = evaluate(known, rows, SystemClock())
        bad = {int(events[row]): reason for row, reason in sorted(bad_rows.items(), reverse=True)}
    except BrokenError as error:
        return NotTried(name, f"query {name}: {error}", refused=True)
    except SampleError as error:
        return NotTried(name, f"query {name}: {error}", refused=False)
    except HeldTooMuchError as error:
        return NotTried(name, f"query {name}: {error}", refused=True)
    said = notes(config.queries[name], stateful=known.plan.stateful)
    return Tried(name, sample, results, bad, (*([f"selections: {overlap}"] if overlap else []), *said))


def notes(query: QueryConfig, *, stateful: bool) -> tuple[str, ...]:
    """Return in which way the results of a sample may differ from those of a running gateway.

    Args:
        query: the query's config.
        stateful: whether its plan keeps state.
    """
    if query.selection_rule is not None:
        return ("selections that are still open after these events are not shown",)
    if not stateful:
        return ()
    said = ["open groups and windows are shown as if the source had ended after these events"]
    if query.event_times:
        lateness = ", ".join(units.DURATION.format(each.lateness_s) for each in query.event_times.values())
        said.append(f"events count here however late they are; a running gateway waits {lateness} for late ones")
    if query.output.mode != "append":
        said.append(
            f"rows are shown as they are at the end; with output mode {query.output.mode} a sink gets earlier ones, too"
        )
    return tuple(said)
