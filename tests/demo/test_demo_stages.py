"""How the demo says where it is."""

from __future__ import annotations

import io

from rich.console import Console

from gateway.demo.playing.progress import Stages


def test_without_a_terminal_each_stage_is_a_line_when_it_begins_and_when_it_ends() -> None:
    console = Console(file=io.StringIO(), width=40)
    said: list[str] = []
    with Stages(console) as stages:
        for title in ("warm-up", "elastic, trimmed and compressed, with a long title"):
            stage = stages.begin(title, 100)
            said.append(_printed(console))
            stages.show(stage, 50, "half of it [bold]")
            assert _printed(console) == said[-1], "what changes all the time is for terminals"
            stages.end(stage, 100, "200000 mails")
    assert said[0] == "warm-up: begins\n"
    assert _printed(console).splitlines() == [
        "warm-up: begins",
        "warm-up: 200000 mails",
        "elastic, trimmed and compressed, with a long title: begins",
        "elastic, trimmed and compressed, with a long title: 200000 mails",
    ]


def test_on_a_terminal_there_is_a_bar_for_each_stage() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with Stages(console) as stages:
        stages.end(stages.begin("warm-up", 100), 100, "200000 mails")
    assert "warm-up: begins" not in _printed(console)
    assert "200000 mails" in _printed(console)
    assert "━━━" in _printed(console)


def _printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
