"""The report of a past period: its data, its one script, and the page in a real browser, without a network."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import async_playwright, expect
from typer.testing import CliRunner, Result

from gateway.cli import main
from gateway.views.live.moments import Mark, Moment, QueryMoment, VmMoment
from gateway.views.report.bundling import BundleSourceError, bundled
from gateway.views.report.reporting import Period, ReportError, cost_usd, report_page
from tests.connectors.ports import free_port
from tests.gateway.daemon_site import configured

FILES = Path(__file__).parents[2] / "gateway" / "views" / "http" / "livepage" / "files"
BEGIN_S = 1_780_000_000
SCRIPT = "</script><script>alert(1)</script><!--"
WITHIN_MS = 20_000


def minute(number: int, **said: Any) -> Moment:
    """The minute that ends ``number`` minutes after the beginning."""
    figures: dict[str, Any] = {"latency": 1.0, "delivery": 0.5, "input": 100.0, "completed": {"home": 100.0}}
    query = QueryMoment("running", **{**figures, **said.pop("query", {})})
    return Moment(id=(BEGIN_S + 60 * number) * 1000, for_s=60.0, queries={"words": query}, **said)


def kept(folder: Path, *minutes: Moment) -> Path:
    history = folder / "state" / "history"
    history.mkdir(parents=True)
    (history / "00000001.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in minutes))
    ledger = folder / "state" / "decisions"
    ledger.mkdir()
    (ledger / "00000001.jsonl").write_text("".join(json.dumps(decision(at)) + "\n" for at in (-3, 2, 90)))
    configured(folder, port=free_port())
    return folder / "config.yaml"


def decision(number: int) -> dict[str, Any]:
    seen = {"latency_s": 3.0, "input_rate": 100.0, "open_events": 1, "backlog_events": 0}
    return {
        "at": f"minute {number}", "wall_s": float(BEGIN_S + 60 * number), "query": "words", "policy": "reactive",
        "seen": seen, "vms": {}, "verdict": f"decided in minute {number}", "wanted": None, "why": SCRIPT,
        "forecast": None, "rules": {}, "options": [], "vm_note": "", "actions": [],
    }  # fmt: skip


def report(config: Path, begins: int, ends: int, out: Path) -> Result:
    times = [f"--{word}={utc(number)}" for word, number in (("from", begins), ("to", ends))]
    return CliRunner().invoke(main, ["report", str(config), *times, "--out", str(out)])


def utc(number: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(BEGIN_S + 60 * number, UTC).isoformat()


def data_of(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def test_only_the_period_is_in_the_report(tmp_path: Path) -> None:
    vm = {"vm-1": VmMoment("sending", float(BEGIN_S), float(BEGIN_S + 60))}
    minutes = [minute(n, usd=0.1 * n, vms=vm if n > 2 else {}) for n in range(-10, 11)]
    config = kept(tmp_path, *minutes)
    said = report(config, 0, 5, tmp_path / "deep" / "r.html")
    assert said.exit_code == 0, said.output
    data = data_of((tmp_path / "deep" / "r.html").read_text())
    assert [moment["id"] // 1000 - BEGIN_S for moment in data["moments"]] == [60, 120, 180, 240, 300]
    assert [each["verdict"] for each in data["decisions"]] == ["decided in minute 2"]
    assert data["usd"] == pytest.approx(0.5)
    assert data["vm_s"] == 180
    assert data["thresholds"]["words"]["qos_latency_s"] == 2.0
    nothing = report(config, 20, 30, tmp_path / "none.html")
    assert (nothing.exit_code, "no gateway ran then" in nothing.output) == (1, True)
    assert not (tmp_path / "none.html").exists()
    assert report(config, 5, 5, tmp_path / "none.html").exit_code == 2
    wrong = CliRunner().invoke(main, ["report", str(config), "--from", "noon"])
    assert (wrong.exit_code, "as in 10m" in wrong.output) == (2, True)


def test_a_running_gateways_moments_count_instead_of_those_on_disk(tmp_path: Path) -> None:
    kept(tmp_path, *(minute(n) for n in range(5)))
    config = configured(tmp_path, port=free_port())
    newest = [msgspec.structs.replace(minute(3), id=(BEGIN_S + at) * 1000, for_s=1.0) for at in range(181, 200)]
    page = report_page(config, Period(BEGIN_S, BEGIN_S + 600), BEGIN_S + 600, newest)
    ids = [moment["id"] // 1000 - BEGIN_S for moment in data_of(page)["moments"]]
    assert ids == [60, 120, 180, *range(181, 200)]
    with pytest.raises(ReportError):
        report_page(config, Period(BEGIN_S + 601, BEGIN_S + 700), BEGIN_S + 600, newest)


@pytest.mark.parametrize(
    ("spent", "before", "cost"),
    [([], 1.0, 0.0), ([1.0, 1.5], 1.0, 0.5), ([0.25, 0.5], 1.0, 0.5), ([1.5, 0.25, 0.25, 0.75], 1.0, 1.25)],
)
def test_costs_add_up_over_gateways(spent: list[float], before: float, cost: float) -> None:
    assert cost_usd([minute(n, usd=usd) for n, usd in enumerate(spent)], before) == pytest.approx(cost)


def test_modules_are_put_into_one_script_once_and_in_order() -> None:
    texts = {
        "a.js": 'import { b, c } from "./b.js";\nimport { c as no } from "./c.js";\nb();',
        "b.js": 'import { c } from "./c.js";\nexport const b = () => c;\nexport class C {}\nconst own = 1;',
        "c.js": "export function c() {}\nexport async function d() {}",
    }
    script = bundled("a.js", texts.__getitem__)
    assert [script.count(f'modules["{name}"] = ') for name in texts] == [1, 1, 1]
    assert script.index('modules["c.js"] =') < script.index('modules["b.js"] =') < script.index('modules["a.js"] =')
    assert "return { b, C };" in script
    assert "return { c, d };" in script
    assert not re.search(r"^(import|export)", script, re.MULTILINE)


@pytest.mark.parametrize(
    "texts",
    [
        {"a.js": 'import x from "./b.js";'},
        {"a.js": "export default 1;"},
        {"a.js": 'import { b } from "./b.js";', "b.js": 'import { a } from "./a.js";'},
    ],
)
def test_a_module_that_cannot_be_put_in_is_an_error(texts: dict[str, str]) -> None:
    with pytest.raises(BundleSourceError):
        bundled("a.js", texts.__getitem__)


@pytest.mark.xdist_group("browser")
async def test_the_page_shows_the_pictures_of_the_live_page_from_a_file(tmp_path: Path) -> None:
    away = {"latency": 5.0, "completed": {"home": 60.0, "vm-1": 40.0}, "share": 0.4, "raw": 2000.0, "sent": 500.0}
    marks = (Mark(BEGIN_S + 130.0, "launched", "vm-1", SCRIPT),)
    vm = {"vm-1": VmMoment("sending", float(BEGIN_S), float(BEGIN_S + 60))}
    busy = minute(3, query=away, marks=marks, vms=vm, usd=0.5)
    config = kept(tmp_path, minute(0), minute(1), minute(2), busy, minute(4, usd=0.5))
    assert report(config, 0, 9, tmp_path / "r.html").exit_code == 0
    chromium = shutil.which("chromium")
    assert chromium is not None, "there is no chromium in PATH: make browser"
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium)
        page = await browser.new_page(viewport={"width": 1280, "height": 900})
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("request", lambda asked: None if asked.url.endswith("/r.html") else wrong.append(asked.url))
        await page.goto((tmp_path / "r.html").as_uri())
        query = page.locator('[data-query="words"]')
        await expect(query.locator("canvas")).to_have_count(6, timeout=WITHIN_MS)
        await expect(query).to_contain_text("about 24,000 events")
        await expect(query).to_contain_text("about 2,400 events10 %")
        await expect(query).to_contain_text("promised: 2 s")
        await expect(query.locator(".legend").first).to_contain_text("VM launched")
        await expect(query.locator(".legend").nth(1)).to_contain_text("completed on vm-1")
        await expect(page.locator("#money")).to_contain_text("0.50 USD")
        await expect(page.locator("#marks")).to_contain_text(f"vm-1 launched, {SCRIPT}")
        await expect(page.locator("#decisions")).to_contain_text("decided in minute 2")
        assert (await Axe().run(page)).response["violations"] == []
        await page.screenshot(path=tmp_path / "r.png", full_page=True)
        await browser.close()
    assert wrong == []
