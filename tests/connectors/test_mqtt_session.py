"""The QoS 2 protocol between a model of a broker and the real connection, which is killed at every step."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from gateway.connectors.heldpaho import Arrival
from gateway.connectors.mqttbroker import Broker
from gateway.connectors.mqttclient import MessageReleased, MqttClient
from gateway.journal.journal import Journal
from gateway.sources.mqtt import session as module
from gateway.sources.mqtt.connection import MqttConnection
from gateway.sources.mqtt.session import Session, restore_sessions
from infra.clock import SystemClock
from infra.statefiles import StateError, write_atomically


class DeathError(BaseException):
    """The process ends here."""


class Fate:
    """Kills at a step that is chosen again after each kill."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.deaths = 0
        self._steps_left = self.chance.randint(0, 12)

    def step(self) -> None:
        if self._steps_left == 0:
            self._steps_left = self.chance.randint(0, 12)
            self.deaths += 1
            raise DeathError
        self._steps_left -= 1


class Sender:
    """A broker's side of QoS 2 for one client, with few ids, so that they are reused soon."""

    def __init__(self, payloads: Sequence[bytes], fate: Fate) -> None:
        self._waiting = list(payloads)
        self._unsent: list[int] = []
        self._published: dict[int, tuple[bytes, bool]] = {}
        self._released: list[int] = []
        self._fate = fate

    @property
    def done(self) -> bool:
        return not (self._waiting or self._published or self._released)

    def connect(self) -> None:
        """All open messages are sent once more."""
        self._unsent = list(self._published)

    def deliver(self) -> list[Arrival | MessageReleased]:
        items: list[Arrival | MessageReleased] = [MessageReleased(number) for number in self._released]
        for number in self._unsent:
            items.append(Arrival("t", self._published[number][0], 2, number, again=self._published[number][1]))
            self._published[number] = (self._published[number][0], True)
        self._unsent = []
        for number in (1, 2, 3):
            if self._waiting and number not in self._published and number not in self._released:
                # It is under way, and may be lost there with the connection.
                payload = self._waiting.pop(0)
                self._published[number] = (payload, True)
                items.append(Arrival("t", payload, 2, number, again=False))
        self._fate.chance.shuffle(items)
        return items[: self._fate.chance.randint(1, len(items))] if items else []

    # What the connection calls; each answer may be the last thing that it does.

    def acknowledge(self, arrivals: Sequence[Arrival]) -> None:
        for arrival in arrivals:
            self._fate.step()
            if self._published.pop(arrival.packet_id, None) is not None:
                self._released.append(arrival.packet_id)

    def complete(self, release: MessageReleased) -> None:
        self._fate.step()
        self._released.remove(release.packet_id)


class Kept:
    """A journal in memory that dies before or after an append, and forgets released records.

    A replicated one keeps the notes, together with the append that they came with.
    """

    def __init__(self, fate: Fate, *, replicated: bool) -> None:
        self.replicated = replicated
        self.notes: dict[str, bytes] = {}
        self.records: list[bytes] = []
        self.first_record = 0
        self._keys: list[tuple[int, str]] = []
        self._fate = fate

    @property
    def next_record(self) -> int:
        return len(self.records)

    async def append(
        self, records: Sequence[bytes], *, key: str, topics: Sequence[str], notes: Mapping[str, bytes]
    ) -> None:
        assert self.replicated or not notes
        self._fate.step()
        self._keys.append((len(self.records), key))
        self.records += records
        self.notes |= notes
        self._fate.step()

    async def note(self, notes: Mapping[str, bytes]) -> None:
        self._fate.step()
        self.notes |= notes
        self._fate.step()

    def keys_since(self, record: int) -> set[str]:
        return {key for at, key in self._keys if at >= max(record, self.first_record)}


@pytest.mark.parametrize("replicated", [False, True])
@pytest.mark.parametrize("seed", range(20))
async def test_each_message_is_kept_once_wherever_the_process_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, replicated: bool
) -> None:
    """With a copy of the journal, each process is on another machine than the one before."""
    fate = Fate(seed)
    payloads = [fate.chance.choice([b"same", b"%d" % n]) for n in range(60)]
    sender, journal = Sender(payloads, fate), Kept(fate, replicated=replicated)

    def write(path: Path, data: bytes) -> None:
        fate.step()
        path.write_bytes(data)
        fate.step()

    monkeypatch.setattr(module, "write_atomically", write)

    async def live() -> None:
        folder = tmp_path / str(fate.deaths) if replicated else tmp_path
        restore_sessions(folder, journal.notes)
        folder.mkdir(exist_ok=True)
        session = Session(folder / "session.json", receive_max=3)  # as many as this broker has under way
        await session.open(journal.keys_since)
        connection = MqttConnection("c", session, {"t": 2}, Broker("h", 1), 1, cast("Journal", journal), SystemClock())
        while not sender.done:
            if fate.chance.random() < 0.5:
                sender.connect()
            await connection.keep(cast("MqttClient", sender), sender.deliver())
            if fate.chance.random() < 0.3:
                await session.settle(journal.next_record)
                journal.first_record = journal.next_record

    while not sender.done:
        try:
            await live()
        except DeathError:
            continue
    assert fate.deaths > 3
    assert sorted(journal.records) == sorted(payloads)
    assert len(journal.records) == len(payloads)


async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    write_atomically(path, b"{")
    with pytest.raises(StateError, match=r"session\.json cannot be read"):
        await Session(path).open(lambda _: set())


async def test_a_broker_without_the_session_begins_anew(tmp_path: Path) -> None:
    """Ids of an old session mean other messages in a new session."""
    session = Session(tmp_path / "session.json")
    await session.open(lambda _: set())
    arrival = Arrival("t", b"x", 2, 7, again=True)
    await session.note([arrival], [], 0)
    session.made()
    assert session.is_known(arrival)
    assert not session.is_known(Arrival("t", b"x", 2, 7, again=False))
    assert not session.is_known(Arrival("t", b"y", 2, 7, again=True))
    await session.begin()
    assert not session.is_known(arrival)
    again = Session(tmp_path / "session.json")
    await again.open(lambda _: set())
    assert not again.is_known(arrival)


async def test_what_a_broker_that_counts_on_releases_and_sends_again_is_known(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path / "session.json", receive_max=3)
    await session.open(lambda _: set())

    def message(number: int, *, again: bool) -> Arrival:
        return Arrival("t", b"x", 2, number, again=again)

    async def taken(number: int) -> None:
        await session.note([message(number, again=False)], [], 0)
        session.made()
        await session.note([], [MessageReleased(number)], 0)

    for _ in range(5):  # as when the disk fails, which is no further number
        await session.note([message(1, again=False)], [], 0)
    for number in (1, 2, 3):
        await taken(number)
        assert not session.is_known(message(number, again=True)), "it may be the lowest number that is free"
    await taken(4)
    assert [number for number in range(1, 5) if session.is_known(message(number, again=True))] == [2, 3, 4]
    await session.note([], [MessageReleased(2)], 0)
    await taken(5)
    assert [number for number in range(1, 6) if session.is_known(message(number, again=True))] == [2, 4, 5]
    await taken(4)
    assert not session.is_known(message(5, again=True)), "it does use numbers again"
