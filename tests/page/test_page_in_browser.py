"""The live page in a real browser, against a daemon whose query and VMs are doubles."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright, expect

from gateway import daemon as daemon_module
from gateway.journal.deadletters import dead_letter
from gateway.views.http import serving
from gateway.views.http.orders import PinOrder
from gateway.views.http.stream import Streams
from gateway.views.live import history as history_module
from gateway.views.live.history import History
from infra.rows.base import SourceError
from tests.connectors.ports import free_port
from tests.gateway.daemon_site import no_texts
from tests.page.burst_site import BurstSite, running
from tests.support.waiting import until

__all__ = ["no_texts"]
pytestmark = pytest.mark.xdist_group("browser")
SHOWN_WITHIN_MS = 20_000
DESK, PHONE = (1280, 900), (360, 740)
Scheme = Literal["light", "dark"]
LOOKS: list[tuple[Scheme, tuple[int, int]]] = [("light", DESK), ("dark", PHONE)]
SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    path = shutil.which("chromium")
    assert path is not None, "there is no chromium in PATH: make browser"
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path)
        yield browser
        await browser.close()


@asynccontextmanager
async def opened(
    browser: Browser, url: str, *, scheme: Scheme = "light", size: tuple[int, int] = DESK
) -> AsyncIterator[Page]:
    """Open the page; at the end nothing may have gone wrong in it, and all that it loaded came from the gateway."""
    context = await browser.new_context(color_scheme=scheme, viewport={"width": size[0], "height": size[1]})
    page = await context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(url) else wrong.append(request.url))
    # A refused action is an error of the console, too.
    page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
    page.on("dialog", lambda dialog: dialog.accept())
    page.set_default_timeout(SHOWN_WITHIN_MS)
    expect.set_options(timeout=SHOWN_WITHIN_MS)
    await page.goto(url)
    await expect(page.locator("#connection")).to_have_text("Live.")
    yield page
    assert wrong == []
    await context.close()


@pytest.fixture
async def burst(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BurstSite]:
    async with running(tmp_path, monkeypatch, free_port()) as site:
        yield site


async def test_a_burst_makes_a_vm_appear_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        running(tmp_path, monkeypatch, free_port(), period_s=4) as burst,
        chromium() as browser,
        opened(browser, burst.url) as page,
    ):
        query = page.locator('[data-query="words"]')
        await expect(query).to_contain_text("400 ms")
        await expect(query).to_contain_text("within the promised 2 s")
        await expect(query).to_contain_text("800 events/s")
        await expect(query.locator("figure").first.locator(".legend")).to_have_text(
            "L, compared with the thresholds400 msevents go to VMs above (L_d)2 s"
            "a VM is launched above (L_s)2.4 spromised (QoS)2 s"
        )
        await expect(page.locator("#no-vm")).to_be_visible()

        burst.latency_s = 5.0
        vm = page.locator('[data-vm="vm-1"]')
        await expect(vm).to_contain_text("of the billing period of 4 s")
        await expect(query).to_contain_text("above the promised 2 s")
        await expect(query).to_contain_text("completed on vm-1")
        await expect(query.locator(".legend").first).to_contain_text("VM launched")
        await expect(page.locator("#decisions")).to_contain_text("vm-1 is launched: ")

        burst.latency_s = 0.1
        await expect(vm).to_have_count(0)
        await expect(query.locator(".legend").first).to_contain_text("VM terminated")
        await expect(page.locator("#marks")).to_contain_text("vm-1 terminated")
        await expect(page.locator("#money")).not_to_contain_text("nothing billed")


async def test_orders_need_the_token_and_the_page_shows_each_answer(burst: BurstSite) -> None:
    scheduler = burst.site.daemon.parts.scheduler
    async with chromium() as browser, opened(browser, burst.url) as page:
        answer, query = page.locator("#answer-text"), page.locator('[data-query="words"]')
        await query.get_by_label("Pin to").select_option("cloud")
        await query.get_by_role("button", name="Pin", exact=True).click()
        await expect(answer).to_contain_text("Refused: this needs the gateway's token")
        await page.get_by_label("Token", exact=True).fill("x" * 43)
        await page.get_by_role("button", name="Use token").click()
        await query.get_by_role("button", name="Pin", exact=True).click()
        await expect(answer).to_contain_text("Refused: this is not the gateway's token")
        assert not scheduler.pins

        await page.get_by_label("Token", exact=True).fill(burst.token)
        await page.get_by_role("button", name="Use token").click()
        await query.get_by_label("Pin to").select_option("share")
        await query.get_by_label("share in %").fill("30")
        await query.get_by_role("button", name="Pin", exact=True).click()
        await expect(answer).to_have_text("Done: query words is pinned 30.0% to the cloud for 3600 s.")
        assert scheduler.pins["words"].share == 0.3
        await expect(query).to_contain_text("pinned to 30 % until ")
        await expect(query).to_contain_text("pinned share")

        await page.get_by_role("button", name="Pause decisions").click()
        await expect(page.locator("#paused")).to_contain_text("Decisions are paused until ")
        await page.get_by_role("button", name="Resume decisions").click()
        await expect(answer).to_have_text("Done: decisions are resumed.")
        await query.get_by_role("button", name="End the pin").click()
        await expect(answer).to_have_text("Done: query words is no longer pinned.")
        assert not scheduler.pins
        stop = page.get_by_role("button", name="Stop vm-1")
        await stop.click()
        await expect(page.locator('[data-vm="vm-1"]')).to_have_count(0)
        assert "vm-1" not in scheduler.vms
        # The token is this tab's only.
        assert await page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0


async def serious_faults(page: Page) -> list[str]:
    found: dict[str, Any] = (await Axe().run(page)).response
    return [
        f"{fault['id']}: {[node['html'] for node in fault['nodes']]}"
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
    ]


async def test_failures_and_dead_letters_are_shown_as_text_to_everybody(burst: BurstSite) -> None:
    folder = burst.folder / "state" / "queries" / "words"
    folder.mkdir(parents=True, exist_ok=True)
    letters = [dead_letter(f"reason {n} {SCRIPT}", SCRIPT.encode(), 1.7e9, seq=n) for n in range(3)]
    (folder / "dead-letters.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(letters))
    burst.site.query.dead_letters.count = 3
    burst.latency_s = 5.0
    await until(lambda: "vm-1" in burst.site.daemon.parts.scheduler.vms)
    async with chromium() as browser:
        for scheme, size in LOOKS:
            async with opened(browser, burst.url, scheme=scheme, size=size) as page:
                card = page.locator('[data-failure="words"]')
                await expect(card).to_contain_text("3 dead letters")
                await card.get_by_role("button", name="Show dead letters").click()
                await expect(page.locator("#answer-text")).to_contain_text("token")
                await page.get_by_label("Token", exact=True).fill(burst.token)
                await page.get_by_role("button", name="Use token").click()
                await card.get_by_role("button", name="Show dead letters").click()
                await expect(card).to_contain_text(f"reason 2 {SCRIPT}")
                await expect(card.locator("pre").first).to_have_text(SCRIPT)
                await expect(page.locator('[data-vm="vm-1"]')).to_be_visible()
                assert await serious_faults(page) == []
                wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                assert await page.evaluate(wide) <= 0
        burst.site.query.fails = SourceError(f"in.jsonl is damaged {SCRIPT}")
        async with opened(browser, burst.url) as page:
            await expect(page.locator('[data-failure="words"]')).to_contain_text(f"in.jsonl is damaged {SCRIPT}")
            await expect(page.get_by_role("button", name="Restart words")).to_be_visible()


class CutStreams(Streams):
    """The streams of a gateway, which the test can cut."""

    def cut(self) -> None:
        self.end()

    def mend(self) -> None:
        self._ends.clear()


@pytest.mark.parametrize("moments", [2, 40], ids=["shorter than what is kept", "longer than what is kept"])
async def test_a_page_whose_connection_was_lost_shows_what_happened_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moments: int
) -> None:
    made: list[CutStreams] = []

    def make(history: History) -> CutStreams:
        made.append(CutStreams(history))
        return made[-1]

    monkeypatch.setattr(serving, "Streams", make)
    monkeypatch.setattr(history_module, "MINUTE_S", 0.5)
    monkeypatch.setattr(daemon_module, "History", partial(History, newest_most=20))
    async with running(tmp_path, monkeypatch, free_port()) as site, chromium() as browser:
        (streams,) = made
        async with opened(browser, site.url) as page:
            streams.cut()
            await expect(page.locator("#connection")).not_to_have_text("Live.")
            site.site.acting.pin("words", PinOrder(to="home"))
            before = site.slots
            await until(lambda: site.slots > before + moments)
            streams.mend()
            await expect(page.locator("#connection")).to_have_text("Live.")
            await expect(page.locator("#marks li")).to_have_text([re.compile("words pinned")])


async def test_a_page_that_stays_open_continues_with_the_next_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    async with chromium() as browser, AsyncExitStack() as stays:
        async with running(tmp_path, monkeypatch, port) as first:
            page = await stays.enter_async_context(opened(browser, first.url))
            first.site.acting.pin("words", PinOrder(to="home"))
            await expect(page.locator("#marks li")).to_have_text([re.compile("words pinned")])
        await expect(page.locator("#connection")).not_to_have_text("Live.")
        async with running(tmp_path, monkeypatch, port) as second:
            await expect(page.locator("#connection")).to_have_text("Live.")
            second.site.acting.pin("words", PinOrder(to="home"))
            await expect(page.locator("#marks li")).to_have_text([re.compile("words pinned")] * 2)
