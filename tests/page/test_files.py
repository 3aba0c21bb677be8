"""The files of the live page: complete, in the wheel, and nothing in them comes from elsewhere or runs by itself."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hatchling.builders.wheel import WheelBuilder

from gateway.views.http.livepage.assets import page_routes

ROOT = Path(__file__).parents[2]
FILES = ROOT / "gateway" / "views" / "http" / "livepage" / "files"
OURS = sorted(path for path in FILES.glob("*.js") if path.name != "uplot.js")


class Elements(HTMLParser):
    """All elements with their attributes, and the text inside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.code: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in ("script", "style") and data.strip():
            self.code.append(data)


@pytest.fixture
def elements() -> Elements:
    parsed = Elements()
    parsed.feed((FILES / "page.html").read_text())
    return parsed


def test_the_page_has_no_code_of_its_own_and_all_files_that_it_names_exist(elements: Elements) -> None:
    assert elements.code == []
    named = [attrs.get("src") or attrs.get("href") or "" for tag, attrs in elements.found if tag in ("script", "link")]
    assert len(named) >= 5
    assert [name for name in named if not (FILES / name.removeprefix("/assets/")).is_file()] == []
    assert [
        attrs for _, attrs in elements.found if "style" in attrs or any(name.startswith("on") for name in attrs)
    ] == []


def test_every_element_that_a_script_asks_for_is_on_the_page(elements: Elements) -> None:
    ids = [attrs["id"] for _, attrs in elements.found if "id" in attrs]
    asked = set(re.findall(r'\bat\("([\w-]+)"\)', (FILES / "page.js").read_text()))
    assert len(ids) == len(set(ids))
    assert len(asked) > 20
    assert asked <= set(ids)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_script_sets_text_only_as_text_and_imports_what_exists(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text) == []
    assert set(re.findall(r"https?://[^\"'`\s]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert [name for name in re.findall(r'from "\./([\w.]+)"', text) if not (FILES / name).is_file()] == []


async def test_they_are_served_so_that_a_browser_runs_nothing_else() -> None:
    app = web.Application()
    app.add_routes(page_routes())
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        for path in ("/", *(f"/assets/{each.name}" for each in FILES.iterdir())):
            async with session.get(server.make_url(path)) as answer:
                said = answer.headers["Content-Security-Policy"]
                policy = dict(part.strip().split(" ", 1) for part in said.split(";"))
                assert (answer.status, answer.headers["X-Content-Type-Options"]) == (200, "nosniff")
                assert policy["default-src"] == "'none'"
                assert policy["script-src"] == policy["style-src"] == "'self'"
                assert "unsafe" not in said
                if path.endswith(".js"):
                    assert answer.content_type == "text/javascript"
        async with session.get(server.make_url("/assets/../page.html")) as answer:
            assert answer.status == 404


def test_the_wheel_contains_them_and_the_licence_of_what_is_not_ours() -> None:
    packed = {each.distribution_path for each in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {str(path.relative_to(ROOT)) for path in FILES.iterdir()} <= packed
    assert "The MIT License" in (FILES / "uplot-license.txt").read_text()
