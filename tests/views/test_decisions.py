"""The ledger of decisions: which slots get a line, that it stays small, and that a time is found again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.views.why.decisions import DecisionLog, decision_at
from gateway.views.why.telling import moment, sentences
from policies.advice import Advice, Expected, Option
from policies.signals import HOME, BootEstimate, Cause, Command, Decision, Fit, QuerySlot, SetRoute, StartVm

PLANNED = Advice(
    wanted=1,
    kept=1,
    why="planner: 1 VMs, as planned",
    expected=Expected(in_s=12.5, rate=2400.0, low=2200.0, high=2600.0),
    rules={"rate": "1 VMs: 2400 events/s at 1500 an engine need 2", "cpu": "0 VMs: CPU load 60%"},
    options=(Option(0, 0.0125), Option(1, 0.004), Option(2, 0.0075)),
)


def decided(at_s: float = 0.0, **changes: Any) -> Decision:
    slot = QuerySlot(query="q", latency_s=0.4, input_rate=800.0, open_events={HOME: 120}, backlog_events=7)
    decision = Decision(
        query="q",
        at_s=at_s,
        latency_s=0.4,
        phi_vm=False,
        phi_data=False,
        share=0.0,
        verdict="stays home: no VM is ready",
        slot=slot,
        vms={},
        policy="planner",
        advice=PLANNED,
        vm_note="",
        boot=BootEstimate(configured_s=15.0, expected_s=62.4, boots=3),
        rules=PLANNED.rules,
        options=PLANNED.options,
    )
    return replace(decision, **changes)


START = StartVm(vm="vm-1", cause=Cause("e1", "q: planner: 1 VMs, as planned"))


def written(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.iterdir()) if folder.exists() else []
    return [msgspec.json.decode(line) for path in files for line in path.read_bytes().splitlines()]


async def noted(folder: Path, *slots: tuple[float, Decision, list[Command]], **limits: int) -> DecisionLog:
    log = DecisionLog(folder, **limits)
    for wall_s, decision, commands in slots:
        log.note([decision], wall_s, commands)
    await log.close()
    return log


async def test_a_slot_without_news_is_written_only_once_in_sixty(tmp_path: Path) -> None:
    await noted(tmp_path, *((float(at), decided(at), []) for at in range(1000, 1121)))
    assert [line["wall_s"] for line in written(tmp_path)] == [1000.0, 1060.0, 1120.0]


@pytest.mark.parametrize(
    ("change", "commands"),
    [
        ({"vms": {"vm-1": "starting"}}, []),
        ({"phi_data": True}, []),
        ({"advice": replace(PLANNED, wanted=2, kept=2)}, []),
        ({"advice": replace(PLANNED, why="planner: the plain rule decides, the model steps back")}, []),
        ({}, [START]),
    ],
)
async def test_what_changed_is_written_at_once(tmp_path: Path, change: dict[str, Any], commands: list[Command]) -> None:
    await noted(tmp_path, (1.0, decided(), []), (2.0, decided(**change), commands), (3.0, decided(**change), commands))
    assert [line["wall_s"] for line in written(tmp_path)][:2] == [1.0, 2.0]


async def test_a_line_holds_all_that_was_looked_at(tmp_path: Path) -> None:
    others = SetRoute(query="other", shares=((HOME, 1.0),), cause=Cause("e1", "no"))
    fit = Fit(query="q", training=(), cause=Cause("e1", "learn"))
    await noted(tmp_path, (1000.0, decided(), [START, others, fit]))
    (line,) = written(tmp_path)
    assert line["at"] == "1970-01-01T00:16:40.000+00:00"
    assert line["seen"]["input_rate"] == 800.0
    assert line["seen"]["open_events"] == 120
    assert line["forecast"] == {"in_s": 12.5, "rate": 2400.0, "low": 2200.0, "high": 2600.0}
    assert line["rules"] == dict(PLANNED.rules)
    assert line["options"][2] == {"vms": 2, "usd": 0.0075}
    assert line["actions"] == [{"what": "StartVm", "of": "vm-1", "why": "q: planner: 1 VMs, as planned"}]


async def test_the_line_in_force_at_a_time_is_found(tmp_path: Path) -> None:
    for first in (1000, 2000):
        await noted(
            tmp_path,
            *((float(first + at), decided(verdict=f"{first + at}", vms={"v": str(at)}), []) for at in range(5)),
        )
    assert len(list(tmp_path.iterdir())) == 2
    verdicts = {}
    for at_s in (999.0, 1003.5, 1500.0, 2004.0, 9e9):
        line = decision_at(tmp_path, "q", at_s)
        verdicts[at_s] = None if line is None else line["verdict"]
    assert verdicts == {999.0: None, 1003.5: "1003", 1500.0: "1004", 2004.0: "2004", 9e9: "2004"}
    assert decision_at(tmp_path, "other", 9e9) is None
    assert decision_at(tmp_path / "nothing", "q", 9e9) is None


async def test_the_time_that_a_line_tells_leads_back_to_it(tmp_path: Path) -> None:
    await noted(tmp_path, *((1000.1237 + 0.01 * at, decided(vms={"v": str(at)}), []) for at in range(20)))
    for line in written(tmp_path):
        assert decision_at(tmp_path, "q", moment(line["at"], 0.0)) == line


async def test_a_torn_line_is_skipped_and_not_written_to(tmp_path: Path) -> None:
    await noted(tmp_path, (1.0, decided(), []), (2.0, decided(phi_data=True), []))
    (first,) = tmp_path.iterdir()
    first.write_bytes(first.read_bytes()[:-20])
    torn = first.read_bytes()
    found = decision_at(tmp_path, "q", 5.0)
    assert found is not None
    assert found["wall_s"] == 1.0
    await noted(tmp_path, (6.0, decided(), []))
    assert first.read_bytes() == torn
    newest = decision_at(tmp_path, "q", 9.0)
    assert newest is not None
    assert newest["wall_s"] == 6.0


async def test_the_ledger_stays_within_its_bytes(tmp_path: Path) -> None:
    for at in range(200):
        await noted(tmp_path, (float(at), decided(), []), file_bytes=5_000, ledger_bytes=20_000)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert sum(sizes) <= 20_000 + 5_000
    newest = decision_at(tmp_path, "q", 9e9)
    assert newest is not None
    assert newest["wall_s"] == 199.0
    assert decision_at(tmp_path, "q", 1.0) is None


async def test_a_file_is_closed_when_it_is_long_enough(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, file_bytes=3_000)
    for at in range(40):
        log.note([decided(vms={"v": str(at)})], float(at), [])
        await log.close()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) > 5
    assert max(sizes) < 6_000
    assert [line["wall_s"] for line in written(tmp_path)] == [float(at) for at in range(40)]


async def test_a_disk_that_fails_is_told_of_and_nothing_else_happens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    log = await noted(tmp_path / "file" / "ledger", (1.0, decided(), []))
    assert "1 decisions were not written" in caplog.text
    assert log.last["q"]["wall_s"] == 1.0


# -------------------------------------------------------------------------------------------------------------- telling


async def test_a_decision_is_told_in_sentences(tmp_path: Path) -> None:
    await noted(tmp_path, (1000.0, decided(), [START]))
    line = decision_at(tmp_path, "q", 1000.0)
    assert line is not None
    text = "\n".join(sentences(line))
    for part in (
        "q at 1970-01-01T00:16:40.000+00:00: stays home: no VM is ready.",
        "latency 0.40 s, 800 events/s arrive, 120 are being processed, 7 wait",
        "Policy planner: planner: 1 VMs, as planned (wanted 1, kept 1).",
        "2400 events/s in 12.5 s, nine times of ten between 2200 and 2600",
        "Rule cpu would want 0 VMs: CPU load 60%.",
        "0 VMs would cost 0.012500 USD.",
        "1 VM would cost 0.004000 USD, which was chosen.",
        "A VM that is ordered now is expected to serve in 62.4 s, by the last boots (3); boot says 15 s.",
        "Done: StartVm vm-1, because q: planner: 1 VMs, as planned.",
    ):
        assert part in text


async def test_equation_1_and_idleness_are_told_too(tmp_path: Path) -> None:
    unseen = BootEstimate(configured_s=15.0, expected_s=15.0, boots=0)
    quiet = decided(policy="reactive", advice=Advice(), vm_note="max_vms = 0 is reached", boot=unseen)
    await noted(tmp_path, (1000.0, quiet, []))
    line = decision_at(tmp_path, "q", 1000.0)
    assert line is not None
    text = "\n".join(sentences(line))
    assert "Policy reactive: equation 1 decides" in text
    assert "is expected to serve in 15 s, as boot says: no boot was seen yet." in text
    assert "Nothing was done: max_vms = 0 is reached." in text
    assert "Forecast" not in text


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("10m", 99_400.0),
        ("90s", 99_910.0),
        ("1970-01-01T00:16:40", 1000.0),
        ("1970-01-01T01:16:40+01:00", 1000.0),
        (datetime.fromtimestamp(5.0, UTC).isoformat(), 5.0),
    ],
)
def test_times_are_read(text: str, at_s: float) -> None:
    assert moment(text, 100_000.0) == at_s


def test_what_is_no_time_is_refused_with_an_example() -> None:
    with pytest.raises(ValueError, match="as in 10m, or a time in UTC"):
        moment("yesterday", 0.0)
