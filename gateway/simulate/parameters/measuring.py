"""The command ``spillway profile``: micro-batches of rising sizes on real Spark, and a plane through their times."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec import structs

from engines.query.known import KnownQuery, RefusedError, understand
from engines.spark.session import build_session, stop_session
from engines.spark.tablefiles import TABLES
from engines.streaming.feed import FeedServer
from engines.timing import Timed, time_batches, time_in_order
from gateway.config import Config
from gateway.config.codepath import code_path_for
from gateway.config.models import FileSourceConfig, QueryConfig
from gateway.hosts.databases import copy_databases
from gateway.hosts.shipping import kept_here, read_tables
from gateway.query.flow.run import BATCH_RUNS_MAX
from gateway.simulate.parameters.calibration import PAPER_MIPS, Calibration, Measured
from gateway.simulate.parameters.profilingruns import ProfileError, RunsOfSelections, WholeRuns
from gateway.simulate.parameters.sentpart import RUNS_MOST, SentPart, run_events, sent_part
from gateway.sources.choose import SourceContext, make_source
from gateway.views.check.checking import opening
from infra.clock import SystemClock
from infra.payload.tablefiles import TableError
from infra.rows.base import SourceError

SIZES = (1, 250, 500, 1000, 2000, 4000)
RUNS = (1, BATCH_RUNS_MAX)
"""Runs of a micro-batch, if it may take several."""
REPEATS = 6
_REPEATS_LEAST = 2
_READ_BYTES = 64_000_000


def profile(config: Config, names: Sequence[str], tell: Callable[[str], None]) -> Calibration:
    """Measure queries on one engine host with the config's Spark master.

    Args:
        config: as for the daemon.
        names: the queries.
        tell: called with progress messages.

    Raises:
        ProfileError: a query cannot be measured.
        engines.spark.session.SessionError: Spark cannot be started here.
    """
    clock = SystemClock()
    workdir = Path(tempfile.mkdtemp(prefix="spillway-profile-"))
    tell("starting Spark")
    spark, link = config.private.spark, config.cloud.emulate_link
    session = build_session(spark.master, workdir, 1, conf=spark.settings)
    feeds = FeedServer()
    measured: dict[str, Measured] = {}
    try:
        for name in names:
            query = config.queries[name]
            # Of a divided query, what one part would cost with all of the events.
            copies = workdir / "queries" / name
            code_path = code_path_for(query.function, config.folder)
            spec = structs.replace(opening(name, query, code_path, copies), part=None)
            copy_databases(name, query.tables, copies, spark.settings)
            read = read_tables(spec.tables)
            understood = understand(session, kept_here(spec, read, workdir / TABLES))
            once = understood.plan.stateful or query.selection_rule is not None
            wanted = REPEATS * sum(SIZES) if once else max(SIZES)
            there = first_events(name, query, understood.input_schema, workdir, wanted)
            # Times that go back would close no window.
            events = there.slice(0, wanted) if once else _repeated(there, wanted)
            crossed = sent_part(name, query, understood.plan, there, None if link is None else link.bytes_per_s)
            if crossed is None:
                tell(f"{name}: nothing of it may cross the WAN, because of its protected fields")

            def told(timed: Timed, name: str = name) -> None:
                runs = f" in {timed.runs} runs" if timed.runs > 1 else ""
                tell(f"{name}: {timed.events} events{runs} in {timed.batch_s * 1000:.0f} ms")

            batch_runs = BATCH_RUNS_MAX
            if understood.plan.stateful:
                timed = _in_order(name, understood, feeds, events, workdir / name, told)
            else:
                tell(f"{name}: until Java has compiled it")
                # Only a narrow query is measured with several runs: else the rows of each must be told apart.
                several = understood.plan.narrow and query.selection_rule is None
                runs = RunsOfSelections(name, understood, events) if query.selection_rule else WholeRuns(events)
                timed = time_batches(
                    understood,
                    runs.rows,
                    [size for size in SIZES if size <= runs.most_events],
                    repeats=REPEATS,
                    clock=clock,
                    runs=RUNS if several else (1,),
                    tell=told,
                )
                batch_runs = BATCH_RUNS_MAX if several else 1
            measured[name] = fitted(timed, events.nbytes / events.num_rows, batch_runs, crossed)
    except (RefusedError, TableError) as error:
        raise ProfileError(str(error)) from error
    finally:
        feeds.close()
        stop_session(session)
        shutil.rmtree(workdir, ignore_errors=True)
    return Calibration(queries=measured)


def _in_order(
    name: str,
    understood: KnownQuery,
    feeds: FeedServer,
    events: pa.RecordBatch,
    folder: Path,
    tell: Callable[[Timed], None],
) -> list[Timed]:
    """Time a stateful query, which cannot get an event twice; with few events there are fewer repetitions."""
    repeats = min(REPEATS, events.num_rows // sum(SIZES))
    if repeats < _REPEATS_LEAST:
        raise ProfileError(
            f"query {name} holds state and must get each event once: its file has {events.num_rows:,} events, and "
            f"{_REPEATS_LEAST * sum(SIZES):,} are needed"
        )
    folder.mkdir()
    clock = SystemClock()
    return time_in_order(understood, feeds, events, SIZES, repeats=repeats, clock=clock, folder=folder, tell=tell)


def fitted(
    timed: Sequence[Timed], event_bytes: float, batch_runs: int = 1, crossed: SentPart | None = None
) -> Measured:
    """Fit t = a + b n + c (runs - 1) by least squares; a, b and c with their standard errors.

    Args:
        timed: micro-batches of at least two sizes; c is 0 if all have one run.
        event_bytes: mean size of an event.
        batch_runs: the most runs in a micro-batch.
        crossed: what crosses the WAN, if that was measured.

    Raises:
        ProfileError: too few sizes, or more events did not take more time.
    """
    n = np.array([one.events for one in timed], dtype=np.float64)
    further = np.array([one.runs - 1.0 for one in timed])
    t = np.array([one.batch_s for one in timed])
    of = np.stack([np.ones_like(n), n, further] if further.any() else [np.ones_like(n), n], axis=1)
    if len(n) <= of.shape[1] or np.linalg.matrix_rank(of) < of.shape[1]:
        raise ProfileError("a fit needs at least three micro-batches of two sizes")
    found = np.linalg.lstsq(of, t, rcond=None)[0]
    variance = float(np.square(t - of @ found).sum()) / (len(n) - of.shape[1])
    errors = np.sqrt(variance * np.diag(np.linalg.inv(of.T @ of)))
    batch_s, event_s, run_s = (*found.tolist(), 0.0)[:3]
    batch_error_s, event_error_s, run_error_s = (*errors.tolist(), 0.0)[:3]
    if event_s <= 0:
        raise ProfileError(
            "more events did not take more time: the machine was busy with something else; measure again"
        )
    return Measured(
        batch_s=max(0.0, batch_s),
        batch_error_s=batch_error_s,
        run_s=max(0.0, run_s),
        run_error_s=run_error_s,
        batch_runs=batch_runs,
        event_s=event_s,
        event_error_s=event_error_s,
        events_per_s=1 / event_s,
        instructions_per_event=event_s * PAPER_MIPS * 1e6,
        batches=len(n),
        events=int(n.sum()),
        event_bytes=event_bytes,
        sent_part=None if crossed is None else crossed.part,
        sent_from=None if crossed is None else crossed.how,
    )


def first_events(name: str, query: QueryConfig, schema: pa.Schema, folder: Path, wanted: int) -> pa.RecordBatch:
    """Return the first events of a query's source.

    Args:
        name: the query's.
        query: its config.
        schema: of its events.
        folder: for what the source keeps while it is read.
        wanted: so many at least, and enough to measure what crosses the WAN, if there are as many.

    Raises:
        ProfileError: the source is no file, cannot be read, or has no events.
    """
    if not isinstance(query.source, FileSourceConfig):
        raise ProfileError(
            f"query {name} reads from {query.source.type}: put some of its events into a file, "
            "give a config with that source, and measure it"
        )
    context = SourceContext(name, "profile", folder, SystemClock(), _nobody, strict=query.drift == "strict")
    try:
        batches = asyncio.run(_read(query, schema, context, wanted))
    except (SourceError, OSError) as error:
        raise ProfileError(f"the events of query {name} cannot be read: {error}") from error
    if not batches:
        raise ProfileError(f"there are no events in {query.source.path}: nothing can be measured")
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _repeated(events: pa.RecordBatch, wanted: int) -> pa.RecordBatch:
    """Return as many events as are wanted; those of a shorter file are repeated."""
    often = -(-wanted // events.num_rows)
    return pa.Table.from_batches([events] * often).slice(0, wanted).combine_chunks().to_batches()[0]


def _nobody(query: str) -> tuple[Path, Callable[[], bool]]:
    raise ProfileError(f"the results of {query} do not exist while no query runs")


async def _read(query: QueryConfig, schema: pa.Schema, context: SourceContext, wanted: int) -> list[pa.RecordBatch]:
    source = make_source(query.source, context)
    await source.open(schema)
    batches: list[pa.RecordBatch] = []
    try:
        while not _enough(query, batches, wanted):
            chunk = await source.read(max(wanted, RUNS_MOST * query.runs.max_events), _READ_BYTES)
            if chunk is None:
                break
            batches += [chunk.batch] if chunk.batch.num_rows else []
    finally:
        await source.close()
    return batches


def _enough(query: QueryConfig, batches: Sequence[pa.RecordBatch], wanted: int) -> bool:
    events, size_bytes = sum(batch.num_rows for batch in batches), sum(batch.nbytes for batch in batches)
    if events < wanted:
        return False
    return bool(size_bytes >= _READ_BYTES) or events >= RUNS_MOST * run_events(query, size_bytes / events)
