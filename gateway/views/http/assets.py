"""The files of the live page: HTML, style and scripts inside the package, so that it works without a network."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from aiohttp import web

_TYPES: Final = {
    "page.html": "text/html",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "charts.js": "text/javascript",
    "uplot.js": "text/javascript",
    "uplot.css": "text/css",
    "uplot-license.txt": "text/plain",
    "icon.svg": "image/svg+xml",
}
_HEADERS: Final = {
    # Nothing on the page comes from elsewhere, and no text of a user can run.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def asset_routes() -> list[web.RouteDef]:
    """Return the routes of the page at ``/`` and of its files below ``/assets/``."""
    folder = files("gateway.views.http") / "assets"
    contents = {name: (folder / name).read_bytes() for name in _TYPES}

    def serve(name: str) -> web.RouteDef:
        async def handle(_: web.Request) -> web.Response:
            response = web.Response(
                body=contents[name], content_type=_TYPES[name], charset="utf-8", headers=dict(_HEADERS)
            )
            response.enable_compression()
            return response

        return web.get("/" if name == "page.html" else f"/assets/{name}", handle)

    return [serve(name) for name in _TYPES]
