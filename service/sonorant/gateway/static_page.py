"""Serves /, a page to try the voices in a browser. Only the files in page/ can be requested."""

from pathlib import Path

from aiohttp import web

from sonorant.gateway.errors import Refusal

_FOLDER = Path(__file__).with_name("page")
_FILES = {path.name: path for path in _FOLDER.glob("*.*") if path.suffix in (".html", ".js", ".css", ".svg")}
# The page loads nothing from other hosts; recordings and generated audio are blobs.
_POLICY = (
    "default-src 'self'; connect-src 'self' ws: wss:; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "media-src 'self' blob:"
)


async def page(request: web.Request) -> web.StreamResponse:
    path = _FILES.get(request.match_info.get("file", "index.html"))
    if path is None:
        raise Refusal(404, "there is no such page")
    return web.FileResponse(path, headers={"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"})
