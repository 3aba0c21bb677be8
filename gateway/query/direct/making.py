"""Makes what lets Spark carry a query, from the parts of the query."""

from __future__ import annotations

from collections.abc import Callable

from gateway.config.models import KafkaSinkConfig, QueryConfig
from gateway.connectors.kafkaclients import access_of, client_settings
from gateway.hosts.connection import Connection
from gateway.query.direct.carrier import DirectCarrier
from gateway.query.direct.rule import DirectRule, DirectTerms
from gateway.query.direct.turns import DirectTurns
from gateway.query.flow.ingress import Ingress
from gateway.query.flow.pipeline import Pipeline
from gateway.query.flow.runlog import RunLog
from gateway.sinks.kafka.kafkasink import KafkaSink
from gateway.sinks.kafka.resultstopic import ResultsTopic
from gateway.sinks.owned import OwnedSink
from gateway.sources.replayed import WithReplays
from infra.clock import Clock
from infra.messages import DirectFlow, OpenQuery
from policies.signals import HOME


def has_delivered(sink: OwnedSink) -> bool:
    """Return whether Spark has delivered results that the gateway must leave out."""
    return isinstance(sink.inner, KafkaSink) and sink.inner.direct is not None


def make_turns(
    name: str,
    config: QueryConfig,
    message: OpenQuery,
    home: Callable[[], Connection | None],
    *,
    sink: OwnedSink,
    source: WithReplays,
    log: RunLog,
    ingress: Ingress,
    pipeline: Pipeline,
    on_turn: Callable[[bool, str], None],
    carries: bool,
    clock: Clock,
) -> DirectTurns:
    """Return what takes turns in delivering a query.

    Args:
        name: the query's.
        config: the query's config; source and sink are Kafka's.
        message: see ``DirectCarrier``.
        home: see ``DirectCarrier``.
        sink: the query's, opened.
        source: the query's, opened.
        log: the run log.
        ingress: reads for the gateway.
        pipeline: delivers what the gateway has read.
        on_turn: see ``DirectTurns``.
        carries: see ``DirectTurns``.
        clock: time.
    """
    into, inner = config.sink, sink.inner
    assert isinstance(into, KafkaSinkConfig)
    assert isinstance(inner, KafkaSink)
    flow = DirectFlow(
        starts=(), access=access_of(into), topic=into.topic, key=into.key or "", headers=tuple(into.headers.items())
    )
    results = ResultsTopic(client_settings(into), into.topic)
    limits, tally = config.thresholds, pipeline.tally

    def on_events(events: int) -> None:
        tally.events += events
        tally.events_by_lane[HOME] += events

    carrier = DirectCarrier(message, flow, home, inner, results, clock, on_events)
    rule = DirectRule(DirectTerms(late_above_s=limits.send_above_s, late_for_s=limits.tolerance_s))
    return DirectTurns(
        name,
        carrier,
        rule,
        source=source,
        log=log,
        ingress=ingress,
        pipeline=pipeline,
        late_above_s=limits.send_above_s,
        on_turn=on_turn,
        carries=carries,
        clock=clock,
    )
