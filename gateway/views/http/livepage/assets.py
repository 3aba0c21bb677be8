"""The files of the live page: HTML, style and scripts inside the package, so that it works without a network."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from aiohttp import web

_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PAGE_HEADERS: Final = {
    # Nothing on the page comes from elsewhere, and no text of a user can run.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> list[web.RouteDef]:
    """Return the routes of the page at ``/`` and of its files below ``/assets/``."""
    contents = {each.name: each.read_bytes() for each in (files(__package__) / "files").iterdir()}
    routes = [_route(f"/assets/{name}", name, content) for name, content in sorted(contents.items())]
    return [_route("/", "page.html", contents["page.html"]), *routes]


def _route(path: str, name: str, content: bytes) -> web.RouteDef:
    kind = _TYPES.get(name[name.rindex(".") :], "text/plain")

    async def handle(_: web.Request) -> web.Response:
        response = web.Response(body=content, content_type=kind, charset="utf-8", headers=PAGE_HEADERS)
        response.enable_compression()
        return response

    return web.get(path, handle)
