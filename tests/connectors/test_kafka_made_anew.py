"""A topic that was deleted and created again has other records under the same offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.connectors.kafkaclients import client_settings
from gateway.connectors.position import Position
from gateway.query.looking import SourcePlace, look
from gateway.sources.files.notes import NotesFile
from gateway.sources.kafka import topicids
from gateway.sources.kafka.topicids import Topics, topics_of
from gateway.sources.marks import FileMark, KafkaMark
from infra.rows.base import SourceError
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_sources import lines, make_source, put
from tests.connectors.kafka_topics import config, made, made_anew
from tests.connectors.source_contract import SCHEMA, read, rows


def place(broker: Broker, folder: Path, *topics: str) -> SourcePlace:
    return SourcePlace(config(broker, *topics), folder, lambda _: NotesFile(folder / "files.json"))


async def test_a_topic_has_an_id_of_its_own(broker: Broker) -> None:
    one, two = await made(broker), await made(broker)
    settings = client_settings(config(broker, one))
    found = await topics_of(settings, [one, two])
    assert set(found.ids) == {one, two}
    assert len({*found.ids.values(), ""}) == 3
    assert found.cluster
    with pytest.raises(SourceError, match='there is no topic "nobody-made-this"'):
        await topics_of(settings, [one, "nobody-made-this"])
    assert await topics_of(settings, [two]) == Topics(found.cluster, {two: found.ids[two]})


async def test_positions_in_a_topic_that_was_made_anew_begin_anew_and_others_go_on(
    broker: Broker, tmp_path: Path
) -> None:
    stays, goes = await made(broker), await made(broker)
    both = place(broker, tmp_path, stays, goes)
    first = await look(both, None, Position())
    assert not first.changed
    position = Position(30, offsets={f"{stays}/0": 10, f"{goes}/0": 20}, replayed=3)
    assert not (await look(both, first.mark, position)).changed
    await made_anew(broker, goes)
    second = await look(both, first.mark, position)
    assert f"{goes} was deleted and created again" in second.changed
    assert second.kept(position) == Position(30, offsets={f"{stays}/0": 10}, replayed=3)
    assert not (await look(both, second.mark, position)).changed


async def test_records_of_a_topic_that_was_made_anew_are_all_read(broker: Broker, tmp_path: Path) -> None:
    topic = await made(broker)
    await put(broker, topic, lines(rows(0, 19)))
    known = (await look(place(broker, tmp_path, topic), None, Position())).mark
    source = make_source(broker, topic)
    await source.open(SCHEMA)
    position = (await read(source, 20))[-1].end
    await source.acknowledge(position)
    await source.close()
    await made_anew(broker, topic)
    await put(broker, topic, lines(rows(100, 129)))
    found = await look(place(broker, tmp_path, topic), known, position)
    again = make_source(broker, topic)
    await again.open(SCHEMA)
    await again.seek(found.kept(position))
    numbers = [n for chunk in await read(again, 30) for n in chunk.batch.column("n").to_pylist()]
    assert numbers == list(range(100, 130))
    await again.close()


async def test_a_topic_that_is_read_no_more_is_remembered(broker: Broker, tmp_path: Path) -> None:
    one, two = await made(broker), await made(broker)
    mark = (await look(place(broker, tmp_path, one, two), None, Position())).mark
    fewer = await look(place(broker, tmp_path, one), mark, Position())
    assert not fewer.changed
    await made_anew(broker, two)
    more = await look(place(broker, tmp_path, one, two), fewer.mark, Position())
    assert two in more.changed


async def test_another_cluster_or_another_kind_of_source_is_another_source(broker: Broker, tmp_path: Path) -> None:
    topic = await made(broker)
    mark = (await look(place(broker, tmp_path, topic), None, Position())).mark
    assert isinstance(mark, KafkaMark)
    moved = KafkaMark("elsewhere:9092", "another-cluster", mark.topics)
    position = Position(5, offsets={f"{topic}/0": 5})
    found = await look(place(broker, tmp_path, topic), moved, position)
    assert "another-cluster" in found.changed
    assert found.kept(position) == Position(5)
    assert "another kind" in (await look(place(broker, tmp_path, topic), FileMark("a", 1, "x"), position)).changed


async def test_brokers_that_know_no_ids_are_told_apart_by_their_cluster(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await made(broker)
    settings = client_settings(config(broker, topic))
    known = await topics_of(settings, [topic])
    monkeypatch.setattr(topicids.IdsRequest, "API_VERSION", 99)
    assert await topics_of(settings, [topic]) == Topics(known.cluster, {topic: ""})
