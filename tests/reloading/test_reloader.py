"""A changed file is taken in as a whole, or not at all."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from engines.query.code import CodeError
from gateway.hosts.connection import QueryRefusedError
from gateway.reloading.reloader import ReloadRefusedError
from gateway.reloading.watching import EVERY_S, watch
from infra.link.channel import LinkLost
from tests.reloading.reload_config import BASE, THIRD
from tests.reloading.running_gateway import Running
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until

BAD_RELOADS = 1_000


async def test_a_changed_file_is_taken_in_and_clears_the_last_refusal(tmp_path: Path) -> None:
    running = Running(tmp_path)
    assert "line" not in await running.refused(BASE + "nonsense")
    running.path.write_text(BASE + THIRD)
    assert await running.reloader.reload() == "added: third"
    assert running.checked == [("third",)]
    assert running.reloader.refused == ""
    assert await running.reloader.reload() == "nothing has changed"
    assert len(running.taken) == 1


async def test_what_spark_refuses_is_not_taken_in(tmp_path: Path) -> None:
    running = Running(tmp_path)
    for refusal in (QueryRefusedError("third: there is no column x"), CodeError("no module a")):
        running.refusal = refusal
        assert await running.refused(BASE + THIRD) == str(refusal)
    running.refusal = LinkLost("it ended")
    assert "the private engine host does not answer now (it ended): try again" in await running.refused(BASE + THIRD)


async def test_what_needs_a_restart_is_named_and_nothing_else_is_taken_in(tmp_path: Path) -> None:
    said = await Running(tmp_path).refused(BASE.replace("boot: 10s", "boot: 11s") + THIRD)
    assert said.endswith("cloud.boot cannot change while the gateway runs: restart it, or restore the old value")


async def test_not_now(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.not_now = "the gateway is stopping"
    with pytest.raises(ReloadRefusedError, match="is stopping"):
        await running.reloader.reload()


async def test_two_reloads_come_one_after_the_other(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.path.write_text(BASE + THIRD)
    assert sorted(await asyncio.gather(*(running.reloader.reload() for _ in range(2)))) == [
        "added: third",
        "nothing has changed",
    ]


def broken(draw: random.Random) -> str:
    """Return the file with one mistake: characters or a line that are lost, moved or come in."""
    text = BASE + THIRD
    at, to = sorted(draw.randrange(len(text)) for _ in range(2))
    lines = text.splitlines(keepends=True)
    line = draw.randrange(len(lines))
    return draw.choice(
        [
            text[:at] + text[min(to, at + draw.randint(1, 30)) :],
            text[:at] + draw.choice(["{", "}", ": ", "\t", "- ", "\x00", "é", '"', "&a ", "!!int "]) + text[at:],
            text[:at],
            "".join(lines[:line] + lines[line + 1 :]),
            "".join([*lines[:line], "  " + lines[line], *lines[line + 1 :]]),
            "".join(draw.sample(lines, len(lines))),
        ]
    )


async def test_a_thousand_bad_files_change_nothing_and_each_is_told(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw, running, refused = random.Random(seed), Running(tmp_path, BASE + THIRD), 0
    before = running.config
    while refused < BAD_RELOADS:
        text = broken(draw)
        running.path.write_bytes(text.encode())
        said = ""
        try:
            await running.reloader.reload()
        except ReloadRefusedError as error:
            said = str(error)
        assert running.reloader.refused == said
        if not said:  # not every mistake makes a config wrong
            running.config = before
            continue
        refused += 1
        assert said.startswith((str(running.path), "query "))
        assert running.config is before


async def passed(clock: ManualClock, looks: int) -> None:
    """Let the file be looked at so many times."""
    for _ in range(looks):
        await until(lambda: clock.sleeper_count)
        clock.advance(EVERY_S)
    await until(lambda: clock.sleeper_count)


async def test_a_file_is_reloaded_once_it_has_changed_and_rests(tmp_path: Path) -> None:
    path, clock, seen = tmp_path / "config.yaml", ManualClock(), list[str]()
    path.write_text("one")
    files = [path]

    async def changed() -> None:
        seen.append(path.read_text())

    watching = asyncio.create_task(watch(lambda: files, clock, changed))
    await passed(clock, 2)
    assert seen == []
    for text in ("", "half", "a whole file"):
        path.write_text(text)
        await passed(clock, 1)
    assert seen == []
    await until(lambda: seen == ["a whole file"], clock, EVERY_S)
    path.with_name("new").write_text("one that replaces it")
    path.with_name("new").rename(path)
    await until(lambda: len(seen) == 2, clock, EVERY_S)
    path.unlink()
    await passed(clock, 3)
    assert seen[1:] == ["one that replaces it"]
    path.write_text("back")
    await until(lambda: len(seen) == 3, clock, EVERY_S)
    # The config names another file from now on.
    calendar = tmp_path / "matches.ics"
    calendar.write_text("June")
    files.append(calendar)
    await passed(clock, 3)
    assert len(seen) == 3
    calendar.write_text("July, later")
    await until(lambda: len(seen) == 4, clock, EVERY_S)
    watching.cancel()
