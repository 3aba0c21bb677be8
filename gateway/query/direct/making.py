"""Makes what shares a query with Spark, from the parts of the query."""

from __future__ import annotations

from collections.abc import Callable

from gateway.config.models import KafkaSinkConfig, QueryConfig
from gateway.connectors.kafkaclients import access_of, client_settings
from gateway.hosts.connection import Connection
from gateway.query.direct.carrier import DirectCarrier
from gateway.query.direct.notes import DeliveryNotes
from gateway.query.direct.rule import DirectTerms
from gateway.query.direct.turns import DirectTurns, TurnsOwner
from gateway.query.flow.ingress import Ingress
from gateway.query.flow.pipeline import Pipeline
from gateway.query.flow.runlog import RunLog
from gateway.sinks.kafka.kafkasink import KafkaSink
from gateway.sinks.kafka.resultstopic import ResultsTopic
from gateway.sinks.owned import OwnedSink
from gateway.sources.kafka.kafkasource import KafkaSource
from gateway.sources.replayed import WithReplays
from infra.clock import Clock
from infra.messages import DirectFlow, OpenQuery


def has_delivered(sink: OwnedSink) -> bool:
    """Return whether Spark has delivered results that the gateway must leave out."""
    return isinstance(sink.inner, KafkaSink) and sink.inner.direct is not None


def make_turns(
    name: str,
    config: QueryConfig,
    message_of: Callable[[str], OpenQuery],
    home: Callable[[], Connection | None],
    *,
    sink: OwnedSink,
    source: WithReplays,
    log: RunLog,
    ingress: Ingress,
    pipeline: Pipeline,
    owner: TurnsOwner,
    carries: bool,
    clock: Clock,
) -> DirectTurns:
    """Return what shares a query with Spark.

    Args:
        name: the query's.
        config: the query's config; source and sink are Kafka's.
        message_of: returns the request by which home carries the part with a name; see ``DirectCarrier``.
        home: see ``DirectCarrier``.
        sink: the query's, opened.
        source: the query's, opened.
        log: the run log.
        ingress: reads for the gateway.
        pipeline: delivers what the gateway has read.
        owner: see ``DirectTurns``.
        carries: see ``DirectTurns``.
        clock: time.
    """
    into, inner, main = config.sink, sink.inner, source.main
    assert isinstance(into, KafkaSinkConfig)
    assert isinstance(inner, KafkaSink)
    assert isinstance(main, KafkaSource)
    flow = DirectFlow(
        starts=(), access=access_of(into), topic=into.topic, key=into.key or "", headers=tuple(into.headers.items())
    )
    notes = DeliveryNotes(inner, ResultsTopic(client_settings(into), into.topic), clock)
    limits, carried = config.thresholds, pipeline.tally.carried

    def carrier_of(part: str) -> DirectCarrier:
        return DirectCarrier(part, message_of(part), flow, home, notes, clock, carried)

    return DirectTurns(
        name,
        carrier_of,
        notes,
        DirectTerms(late_above_s=limits.send_above_s, late_for_s=limits.tolerance_s),
        source=main,
        log=log,
        ingress=ingress,
        pipeline=pipeline,
        owner=owner,
        carries=carries,
        clock=clock,
    )
