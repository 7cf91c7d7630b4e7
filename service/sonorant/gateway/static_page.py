"""Serves /, a page to try the voices in a browser, and /docs. Only the files in page/ can be requested."""

from pathlib import Path

from aiohttp import web

from sonorant.gateway.errors import Refusal

_FOLDER = Path(__file__).with_name("page")
_FILES = {path.name: path for path in _FOLDER.glob("*.*") if path.suffix in (".html", ".js", ".css", ".svg")}
# The page loads nothing from other hosts; recordings and generated audio are blobs.
_POLICY = (
    "default-src 'self'; connect-src 'self' ws: wss:; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def page(request: web.Request) -> web.StreamResponse:
    return _file(request.match_info.get("file", "index.html"))


async def docs(request: web.Request) -> web.StreamResponse:
    return _file("docs.html")


def _file(name: str) -> web.FileResponse:
    path = _FILES.get(name)
    if path is None:
        raise Refusal(404, "there is no such page")
    return web.FileResponse(path, headers={"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"})
