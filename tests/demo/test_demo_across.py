"""``spillway demo --wan``: which texts it accepts, and its error if there can be no WAN."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from ruamel.yaml import YAML
from typer.testing import CliRunner

from engines.email.generator import generate_mail
from gateway.cli import main
from gateway.config import load
from gateway.demo.behind import Behind, WanTextError, parse_wan
from gateway.demo.page import write_page
from gateway.demo.report import Report, RunsByMode
from gateway.demo.stage import Stage
from infra.wan import WanSettings


@pytest.mark.parametrize(
    ("text", "wan"),
    [
        ("70ms,50mbit", WanSettings(delay_s=0.035, rate_bits_per_s=50e6)),
        ("70ms, 50 Mbit/s", WanSettings(delay_s=0.035, rate_bits_per_s=50e6)),
        ("1s,1.5Gbit", WanSettings(delay_s=0.5, rate_bits_per_s=1.5e9)),
        ("0ms,300kbit,loss 0.1%", WanSettings(delay_s=0.0, rate_bits_per_s=300e3, loss=0.001)),
    ],
)
def test_a_wan_is_a_round_trip_a_rate_and_a_loss(text: str, wan: WanSettings) -> None:
    assert parse_wan(text) == wan


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a WAN; write the round trip"),
        ("70ms", "is not a WAN; write the round trip"),
        ("70ms,", "is not a WAN; write the round trip"),
        ("70ms,50mbit,loss 1%,5ms", "is not a WAN; write the round trip"),
        ("70,50mbit", '"70" is not a duration'),
        ("70ms,50", '"50" is not the rate of a link'),
        ("70ms,0mbit", "a rate of"),
        ("70ms,50mbit,1%", '"1%" in "70ms,50mbit,1%" is not the share'),
        ("70ms,50mbit,loss 1", '"1" is not a share'),
        ("70ms,50mbit,loss 101%", "more than 100%"),
    ],
)
def test_what_is_no_wan_is_refused_with_what_is(text: str, why: str) -> None:
    with pytest.raises(WanTextError) as refusal:
        parse_wan(text)
    assert why in str(refusal.value)
    said = CliRunner().invoke(main, ["demo", "--wan", text])
    assert said.exit_code == 2
    assert why in said.output


@given(
    st.text(max_size=20) | st.from_regex(r"[0-9.]{1,6}(ms|s),[0-9.]{1,6}[kmg]?bit(,loss [0-9.]{1,5}%)?", fullmatch=True)
)
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        settings = parse_wan(text)
    except WanTextError:
        return
    assert settings.rate_bits_per_s


def test_the_page_names_the_wan(tmp_path: Path, report: Report, runs: RunsByMode) -> None:
    behind = Behind(parse_wan("70ms,50mbit,loss 0.1%"), "native", {})
    write_page(replace(report, config=replace(report.config, wan=str(behind))), runs, tmp_path / "wan.html")
    named = "a WAN of 70 ms there and back and 50 Mbit/s, 0.001 of the packets lost (netem, native)"
    assert named in (tmp_path / "wan.html").read_text()


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = CliRunner().invoke(main, ["demo", "--wan", "70ms,50mbit", "--out", str(tmp_path)])
    assert said.exit_code == 1
    assert "only root may create network namespaces" in said.output
    assert list(tmp_path.iterdir()) == []


def test_the_vms_of_the_demo_are_where_the_wan_ends(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", list(generate_mail(1, 1)), {"site-1": "10.99.0.2"})
    query = stage.replayed("run", {"loops": 1, "id": "message_id"}, {"switching": {"mode": "off"}})
    document = stage.document("run", query, 1.0, 8088, cold=True)
    with (tmp_path / "config.yaml").open("w") as file:
        YAML(typ="safe").dump(document, file)
    cloud = load(tmp_path / "config.yaml", {}).cloud
    assert not cloud.warm, "a cold VM starts its Spark once it is ordered"
    assert stage.document("run", query, 1.0, 8088, cold=False)["cloud"]["warm"]
    assert {name: str(address) for name, address in cloud.namespaces.items()} == {"site-1": "10.99.0.2"}
    assert cloud.emulate_link is None
