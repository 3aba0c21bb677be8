"""The event log: lossless as JSON, replayed to the same commands, and a difference is found and reported."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gateway.cli import main
from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from gateway.simulate.eventlogs import LoggedScheduler
from gateway.simulate.options import WorldOptions
from gateway.simulate.runs.world import World
from gateway.views.why.eventlog import FILE_BYTES, EventLog, LogError, LoggedEvent, read_log, replay
from gateway.views.why.plainjson import dumps, loads
from policies.choose import Policies
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget, LedgerEntry, LedgerState, Reservation
from policies.queueing.loadtable import LoadTable
from policies.signals import (
    HOME,
    Ask,
    BootsRestored,
    BudgetFrozen,
    Command,
    Event,
    Fit,
    Fitted,
    LedgerRestored,
    QuerySlot,
    SetRoute,
    SlotAnswered,
    SlotEnded,
    StartVm,
    VmAdopted,
    VmReady,
    VmReclaimed,
)
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings
from tests.worlds.drawing import drawn

SEEDS = range(1, 36)
LOAD_S = 90.0
Told = Sequence[tuple[Event, Sequence[Command]]]


def lived(seed: int) -> tuple[WorldOptions, Told]:
    options = drawn(seed, load_s=LOAD_S)
    told: list[tuple[Event, Sequence[Command]]] = []

    def note(event: Event, commands: Sequence[Command]) -> None:
        told.append((event, tuple(commands)))

    World(options, make_scheduler=lambda settings: LoggedScheduler(settings, note)).run()
    return options, told


@pytest.fixture(scope="module")
def worlds() -> dict[int, tuple[WorldOptions, Told]]:
    return {seed: lived(seed) for seed in SEEDS}


def steps(told: Told) -> list[LoggedEvent]:
    """The steps of a log, as they would be read from its lines."""
    return [LoggedEvent(loads(dumps(event)), tuple(dumps(command) for command in commands)) for event, commands in told]


def settings() -> SchedulerSettings:
    switching = SwitchingSettings(
        start_vm_above_s=3.0, send_above_s=2.0, keep_vm_above_s=1.0, keep_vm_bytes=1000, tolerance_s=1.0
    )
    query = QuerySettings(name="q", switching=switching, latency_qos_s=2.0, share=0.5)
    terms = BillingTerms(period_s=20.0, minimum_s=20.0, usd_per_hour=0.36, usd_per_gb_sent=0.0)
    return SchedulerSettings(queries=(query,), max_vms=2, billing=terms, budget=Budget(), boot_s=5.0, slot_s=1.0)


# ------------------------------------------------------------------------------------------------------------ replaying


def test_the_logs_of_random_worlds_replay_to_the_same_commands(worlds: dict[int, tuple[WorldOptions, Told]]) -> None:
    for seed, (options, told) in worlds.items():
        found = replay(loads(dumps(options.scheduler)), steps(told))
        assert found.difference == "", f"world {seed}"
        assert found.events == len(told)
        assert found.commands == sum(len(commands) for _, commands in told)
    kinds = {type(each) for _, told in worlds.values() for event, commands in told for each in (event, *commands)}
    assert {Ask, SlotAnswered, Fit, Fitted, StartVm, VmReady, VmReclaimed} <= kinds


def test_another_setting_gives_a_difference(worlds: dict[int, tuple[WorldOptions, Told]]) -> None:
    changed = 0
    for options, told in worlds.values():
        if any(isinstance(command, StartVm) for _, commands in told for command in commands):
            found = replay(replace(options.scheduler, max_vms=0), steps(told))
            assert "The first difference is at event" in found.difference
            assert "In the log: StartVm vm-1, because " in found.difference
            changed += 1
    assert changed > len(SEEDS) / 3


def test_an_event_that_is_left_out_gives_a_difference(worlds: dict[int, tuple[WorldOptions, Told]]) -> None:
    left_out = 0
    for options, told in worlds.values():
        at = next((at for at, (event, _) in enumerate(told) if isinstance(event, VmReady)), None)
        vm = None if at is None else told[at][0].vm  # type: ignore[attr-defined]
        routed = [c for _, commands in told for c in commands if vm in dict(getattr(c, "shares", ()))]
        if at is not None and routed:
            assert replay(options.scheduler, steps([*told[:at], *told[at + 1 :]])).difference
            left_out += 1
    assert left_out > 3


def test_an_event_that_cannot_happen_is_a_difference_too() -> None:
    gone = LoggedEvent(VmReady(event_id="e1", at_s=1.0, vm="vm-7", billing_since_s=0.0), ())
    found = replay(settings(), [gone])
    assert "VmReady of vm-7 (e1, at 1.000 s)" in found.difference
    assert "refuses it: event e1 names 'vm-7', which was never started" in found.difference


# --------------------------------------------------------------------------------------------------------- losslessness

numbers = st.floats(allow_nan=False) | st.sampled_from([math.inf, -math.inf, 5e-324, 0.1 + 0.2])
names = st.text(st.characters(codec="utf-8"), max_size=5)
entries = st.builds(LedgerEntry, st.integers(0, 10**6), names, numbers)
ledgers = st.builds(
    LedgerState,
    st.lists(entries, max_size=3).map(tuple),
    st.lists(st.builds(Reservation, names, numbers, st.lists(entries, max_size=2).map(tuple)), max_size=2).map(tuple),
)
mappings = st.dictionaries(st.sampled_from([HOME, "vm-1", "vm-2"]), numbers)
slots = st.builds(
    QuerySlot,
    query=names,
    latency_s=numbers,
    home_latency_s=st.none() | numbers,
    rates=mappings,
    busy_s=mappings,
    no_credit=st.frozensets(st.sampled_from([HOME, "vm-1"])),
    open_events=st.dictionaries(names.filter(lambda name: name != "$"), st.integers()),
)
happened = st.one_of(
    st.builds(
        SlotEnded,
        event_id=names,
        at_s=numbers,
        queries=st.lists(slots, max_size=2).map(tuple),
        wall_s=st.none() | numbers,
        cpu=mappings,
    ),
    st.builds(LedgerRestored, event_id=names, at_s=numbers, state=ledgers),
    st.builds(BootsRestored, event_id=names, at_s=numbers, boots_s=st.lists(numbers, max_size=3).map(tuple)),
    st.builds(BudgetFrozen, event_id=names, at_s=numbers, why=names),
    st.builds(VmAdopted, event_id=names, at_s=numbers, vm=names, billing_since_s=numbers, booked_s=numbers),
    st.builds(VmReclaimed, event_id=names, at_s=numbers, vm=names, ends_s=numbers),
)


@given(happened)
def test_an_event_is_read_as_it_was_written(event: Event) -> None:
    again = loads(dumps(event))
    assert again == event
    assert dumps(again) == dumps(event)
    assert "\n" not in dumps(event)


def test_trained_models_are_read_as_they_were_written(worlds: dict[int, tuple[WorldOptions, Told]]) -> None:
    fitted = [event for _, told in worlds.values() for event, _ in told if isinstance(event, Fitted) and event.models]
    assert fitted
    for event in fitted:
        again = loads(dumps(event))
        for got, model in zip(again.models, event.models, strict=True):
            if isinstance(model, LoadTable):
                assert got == model
                continue
            assert got.fitted == model.fitted
            assert (got.offset, got.scale, got.observed) == (model.offset, model.scale, model.observed)
            np.testing.assert_array_equal(got.x, model.x)
            np.testing.assert_array_equal(got.y, model.y)


def test_what_is_no_plain_value_is_refused() -> None:
    with pytest.raises(TypeError, match="Scheduler is not a plain value"):
        dumps(Scheduler(settings()))
    with pytest.raises(ValueError, match="not written by this version"):
        loads('{"$":"VmReady","colour":"red"}')


# --------------------------------------------------------------------------------------------------------- immutability


def reachable(value: object) -> Iterator[object]:
    """All objects that can be reached from a value through its attributes and items."""
    yield value
    if isinstance(value, Mapping):
        parts: list[object] = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | frozenset | set):
        parts = list(value)
    elif dataclasses.is_dataclass(value):
        parts = [getattr(value, each.name) for each in dataclasses.fields(value)]
    else:
        parts = []
    for part in parts:
        yield from reachable(part)


def spoil(value: object) -> int:
    """Change everything that can be changed in a value; return how many changes that was."""
    changed = 0
    for each in list(reachable(value)):
        if isinstance(each, dict | list | set):
            each.clear()
            changed += 1
        elif isinstance(each, np.ndarray) and each.flags.writeable:
            each[...] = 0.0
            changed += 1
        elif dataclasses.is_dataclass(each):
            for field in dataclasses.fields(each):
                with pytest.raises(dataclasses.FrozenInstanceError):
                    setattr(each, field.name, None)
    return changed


VIEWS: Sequence[Callable[[Scheduler, float], object]] = (
    lambda scheduler, at_s: scheduler.totals(at_s),
    lambda scheduler, at_s: scheduler.money(at_s),
    lambda scheduler, _: scheduler.vms,
    lambda scheduler, _: scheduler.routes,
    lambda scheduler, _: scheduler.leases,
    lambda scheduler, _: scheduler.ledger,
    lambda scheduler, _: scheduler.last_decisions,
    lambda scheduler, _: scheduler.story("vm-1"),
)


@pytest.mark.parametrize("kind", [StartVm, SetRoute, Fit])
def test_nothing_that_the_scheduler_gives_away_changes_it(
    worlds: dict[int, tuple[WorldOptions, Told]], kind: type[Command]
) -> None:
    """In the first world with such a command, each value is changed as soon as it is returned, and nothing changes."""
    options, told = next(
        (options, told)
        for options, told in worlds.values()
        if any(isinstance(command, kind) for _, commands in told for command in commands)
    )
    spoilt = Scheduler(options.scheduler)
    for event, commands in told:
        given_away = spoilt.handle(copied(event))
        assert [dumps(command) for command in given_away] == [dumps(command) for command in commands]
        assert spoil(given_away) == 1, "nothing but the list of commands can be changed"
        for view in VIEWS:
            assert spoil(view(spoilt, event.at_s)) == 0


def copied(event: Event) -> Event:
    """An event to which nothing else refers, with mappings that could be changed, like those of the profiler."""
    return copy.deepcopy(event) if not isinstance(event, SlotAnswered | Fitted) else loads(dumps(event))


# ------------------------------------------------------------------------------------------------------ the log's files


async def written(folder: Path, told: Told, options: SchedulerSettings, file_bytes: int = FILE_BYTES) -> list[Path]:
    log = EventLog(folder, options, file_bytes)
    for event, commands in told:
        log.note(event, commands)
        log.write_soon()
        await log.close()
    return sorted(folder.iterdir())


def started() -> Told:
    """A VM is launched upon the second slot."""
    scheduler, told = Scheduler(settings()), []
    for at in range(1, 6):
        event = SlotEnded(event_id=f"e{at}", at_s=float(at), queries=(QuerySlot(query="q", latency_s=4.0),))
        told.append((event, scheduler.handle(event)))
    assert [type(command) for _, commands in told for command in commands] == [StartVm]
    return told


def why(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["why", *map(str, arguments)])
    return result.exit_code, result.output


async def test_why_replays_a_log(tmp_path: Path) -> None:
    (file,) = await written(tmp_path, started(), settings())
    assert why("--replay", file) == (0, "5 events, 1 commands: the same\n")


async def test_why_says_what_differs(tmp_path: Path) -> None:
    (file,) = await written(tmp_path, started(), settings())
    file.write_text(file.read_text().replace('"$":"StartVm","vm":"vm-1"', '"$":"StartVm","vm":"vm-9"'))
    code, said = why("--replay", file)
    assert code == 1
    assert "The first difference is at event 2, SlotEnded (e2, at 2.000 s)." in said
    because = "because q: L 4.00 s >= start_vm_above for tolerance"
    assert f"In the log: StartVm vm-9, {because}" in said
    assert f"Now:        StartVm vm-1, {because}" in said


async def test_a_log_of_several_files_is_read_from_its_begin(tmp_path: Path) -> None:
    files = await written(tmp_path, started(), settings(), file_bytes=300)
    assert len(files) > 2
    assert why("--replay", files[-1]) == (0, "5 events, 1 commands: the same\n")
    files[0].unlink()
    code, said = why("--replay", files[-1])
    assert code == 2
    assert "does not begin with settings, and the file before it is gone" in said


async def test_each_gateway_begins_a_file_of_its_own(tmp_path: Path) -> None:
    await written(tmp_path, started(), settings())
    files = await written(tmp_path, started()[:1], settings())
    assert len(files) == 2
    assert [replay(*read_log(file)).events for file in files] == [5, 1]


async def test_a_torn_last_line_is_left_out_and_a_missing_one_is_told(tmp_path: Path) -> None:
    (file,) = await written(tmp_path, started(), settings())
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    assert why("--replay", file) == (0, "4 events, 1 commands: the same\n")
    lines = whole.splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:3], *lines[4:]]))
    with pytest.raises(LogError, match="event 4 follows event 2"):
        replay(*read_log(file))


def test_why_refuses_what_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "00000001.jsonl").write_text('{"query": "q"}\n')
    code, said = why("--replay", tmp_path / "00000001.jsonl")
    assert (code, "does not begin with settings" in said) == (2, True)
    assert why("--replay", tmp_path / "none")[0] == 2
    assert why("config.yaml", "--replay", tmp_path / "none")[0] == 2
    assert why()[0] == 2


def test_a_restored_ledger_counts_and_a_frozen_one_reserves_nothing() -> None:
    day = replace(settings(), budget=Budget(usd_per_day=0.003))
    spent = LedgerState(spent=(LedgerEntry(0, "q", 0.002),))

    def begun(*events: Event) -> bool:
        scheduler = Scheduler(day)
        for event in events:
            assert scheduler.handle(event) == []
        slots = [SlotEnded(event_id="e", at_s=at, queries=(QuerySlot(query="q", latency_s=4.0),)) for at in (1.0, 2.0)]
        return any(scheduler.handle(slot) for slot in slots)

    frozen = BudgetFrozen(event_id="e", at_s=0.0, why="the disk is full")
    assert begun()
    assert not begun(LedgerRestored(event_id="e", at_s=0.0, state=spent))
    assert not begun(frozen)
    assert begun(frozen, replace(frozen, why=""))


def test_policies_that_are_asked_the_same_again_answer_the_same(worlds: dict[int, tuple[WorldOptions, Told]]) -> None:
    """A policy depends only on its questions: everything that it learned is in them, including models."""
    asked = learned = held = 0
    for options, told in worlds.values():
        policies = Policies(options.scheduler.queries, options.scheduler.site)
        questions = [command for _, commands in told for command in commands if isinstance(command, Ask)]
        answers = [event.answers for event, _ in told if isinstance(event, SlotAnswered)]
        for ask, logged in zip(questions, answers, strict=True):
            assert dumps(policies.answer(loads(dumps(ask)))) == dumps(logged)
            asked += 1
            held += all(answer.advice is None for answer in logged)
            learned += any(question.training is not None for question in ask.questions)
    assert 100 < asked < 4 * held  # advice is told again only when it is new
    assert learned > 2
