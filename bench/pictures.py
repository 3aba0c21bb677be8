"""Takes docs/page.png and docs/top.svg: the live page and ``spillway top`` while a burst of mail is served.

    OMP_NUM_THREADS=1 python bench/pictures.py [MAIL.jsonl.gz]

MAIL is what ``spillway mail`` has written; without it, mail is generated. It takes three minutes, and needs chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from playwright.async_api import async_playwright
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

from page_cost import READY, listening

from gateway.views.terminal import overview
from tests.e2e.harness import Gateway, email_query, end_hosts, mail_fixture, until, write_mail

DOCS: Final = Path(__file__).parents[1] / "docs"
PHASES: Final = ((30, 0.4), (75, 1.6), (60, 0.4))
"""Seconds, and the rate as a part of what home serves."""
PICTURE_AFTER_S: Final = 80.0
LISTS: Final = ("status", "queries", "vms", "costs", "decisions?limit=8")
CLOUD: Final = {
    "max_vms": 2,
    "boot": "8s",
    "billing": {"period": "60s", "minimum": "60s", "usd_per_hour": 0.10, "usd_per_gb_sent": 0.09},
    "emulate_link": {"delay": "35ms", "rate": "50Mbit/s"},
}


def answered(url: str) -> dict[str, Any]:
    """Return what ``spillway top`` shows, from the API."""
    found = {}
    for each in LISTS:
        with urllib.request.urlopen(f"{url}/api/v1/{each}", timeout=10) as answer:
            found[each.partition("?")[0]] = json.load(answer)
    return found


async def page_to(path: Path, url: str) -> None:
    """Take a picture of the page."""
    chromium = shutil.which("chromium")
    assert chromium is not None, "there is no chromium in PATH: make browser"
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium)
        page = await browser.new_page(viewport={"width": 1280, "height": 1700})
        await page.goto(url)
        await page.wait_for_selector("canvas")
        await asyncio.sleep(3)  # some moments come
        await page.screenshot(path=path)
        await browser.close()


def terminal_to(path: Path, url: str) -> None:
    """Draw ``spillway top`` as it is on a terminal."""
    console = Console(record=True, width=132, file=io.StringIO(), force_terminal=True)
    console.print(overview(answered(url)))
    # The font is that of the reader's machine: a document loads nothing from elsewhere.
    path.write_text(
        re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="spillway top config.yaml"), flags=re.DOTALL)
    )


def main() -> None:
    """Run a gateway under a burst, and take both pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mail", nargs="?", type=Path, help="JSON lines of mail; generated if left out")
    parser.add_argument("--rate", type=float, default=3000.0, help="what home serves, events per second (3000)")
    said = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name)
        mail = said.mail.absolute() if said.mail else folder / "mail.jsonl"
        if said.mail is None:
            write_mail(mail, mail_fixture(20_000))
        profile = [{"for": f"{for_s}s", "rate": f"{part * said.rate:.0f}/s"} for for_s, part in PHASES]
        replay = {"profile": profile, "loops": 200, "id": "message_id"}
        query = email_query(folder, mail, "email-processor", replay=replay, qos={"latency": "2s"})
        gateway = Gateway(folder, folder / "state", {"email-processor": query}, CLOUD)
        try:
            url = listening(gateway)
            gateway.start()
            until(lambda: READY in gateway.log.read_text(), "the gateway is ready")
            time.sleep(PICTURE_AFTER_S)
            asyncio.run(page_to(DOCS / "page.png", url))
            terminal_to(DOCS / "top.svg", url)
            gateway.kill()
        finally:
            end_hosts(folder / "state")


if __name__ == "__main__":
    main()
