"""The middleware around every request: checks host and origin, identifies the caller, and formats errors."""

import json
import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from sonorant.gateway.errors import Refusal
from sonorant.gateway.upstream.calls import call_of
from sonorant.gateway.upstream.endings import HEADERS
from sonorant.gateway.web.accepted import ignore_rest
from sonorant.gateway.web.bodies import admit
from sonorant.gateway.web.context import CALL, CONFIG, CONNECTIONS, DOOR, HOSTS, METRICS, MISSPELT, REFUSAL
from sonorant.gateway.web.json_input import HALF_A_PAIR, MISSPELT_HEADER
from sonorant.gateway.web.request_log import log_end

log = logging.getLogger(__name__)

_ALLOWED_HEADERS = "Authorization, Content-Type, X-API-Key, X-Request-Id, traceparent"
_SHOWN_HEADERS = f"X-Request-Id, {MISSPELT_HEADER}, X-Word-Timestamps, {HEADERS}, Retry-After"
_DOORS = {"/v1/audio/speech/stream": "stream", "/v1": "openai", "/tts": "cartesia"}

_LOOKS = ("/health", "/ready", "/metrics")  # which come all the time

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def edge(request: web.Request, handler: Handler) -> web.StreamResponse:
    request[DOOR] = next((door for path, door in _DOORS.items() if request.path.startswith(path)), "other")
    status = 499  # as proxies log a caller who hung up
    begin_s = time.monotonic()
    try:
        with request.app[CONNECTIONS].busy(request.transport):
            response = await _answer(request, handler)
        status = response.status
        return response
    finally:
        request.app[METRICS].requests.labels(request[DOOR], status).inc()
        if request.path not in _LOOKS:
            _log_end(request, status, time.monotonic() - begin_s)


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        protocols = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
        request[CALL] = call_of(request.headers, protocols, request.remote or "")
        _check_host(request)
        _check_origin(request)
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            return web.Response(status=204)
        if request.method == "POST" and request.match_info.http_exception is None:
            await admit(request)
        return await handler(request)
    except Refusal as error:
        refusal = error
    except web.HTTPException as error:
        if error.status < 400:
            raise
        refusal = Refusal(error.status, _explained(request, error))
    except UnicodeEncodeError:
        refusal = Refusal(400, HALF_A_PAIR)
    except ConnectionError:
        raise  # the caller is gone
    except Exception:
        log.exception("%s failed", request.path, extra={"request_id": request[CALL].request_id})
        refusal = Refusal(500, f"internal error, request_id={request[CALL].request_id}")
    request[REFUSAL] = refusal
    request.app[METRICS].refusals.labels(request[DOOR], refusal.status, refusal.code or "").inc()
    kind = web.Response if request.content.is_eof() else _LastAnswer
    text = json.dumps(refusal.body)
    return kind(text=text, content_type="application/json", status=refusal.status, headers=refusal.headers)


class _LastAnswer(web.Response):
    """The answer to a request whose body is not read to its end. The caller sees at once that nothing follows it; what
    still comes is thrown away until the caller closes the connection, too."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        self.force_close()
        ignore_rest(request.transport)
        self._transport = request.transport
        return await super().prepare(request)

    async def write_eof(self, data: bytes = b"") -> None:
        await super().write_eof(data)
        transport = self._transport
        if transport is not None and transport.can_write_eof() and not transport.is_closing():
            transport.write_eof()


def _log_end(request: web.Request, status: int, duration_s: float) -> None:
    """Log a request that is over. Texts come in bodies and queries, and these are never logged."""
    told = {"http_method": request.method, "path": request.path[:100]}
    if CALL in request:
        told["request_id"] = request[CALL].request_id
    log_end(request[DOOR], status, duration_s, request.get(REFUSAL), **told)


def _explained(request: web.Request, error: web.HTTPException) -> str:
    match error.status:
        case 404:
            return f"there is nothing at {request.path[:100]!r}; GET /openapi.json lists all paths"
        case 405:
            return f"{request.path[:100]!r} does not take {request.method}; GET /openapi.json lists the methods"
        case 413:
            return "the body is too large; send less"
    return error.reason


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add headers to every answer, errors and streams included."""
    if CALL in request:
        response.headers["X-Request-Id"] = request[CALL].request_id
    if misspelt := request.get(MISSPELT):
        response.headers[MISSPELT_HEADER] = misspelt
    response.headers["Server"] = "sonorant"
    response.headers["X-Content-Type-Options"] = "nosniff"
    origin = request.headers.get("Origin")
    if origin and _is_allowed(request, origin):
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Allow-Methods"] = "GET, POST, DELETE"
        response.headers["Access-Control-Allow-Headers"] = _allowed_headers(request)
        response.headers["Access-Control-Expose-Headers"] = _SHOWN_HEADERS
        response.headers["Access-Control-Max-Age"] = "86400"
        response.headers["Vary"] = "Origin"


def _allowed_headers(request: web.Request) -> str:
    """The headers that the page asks to send: SDKs describe their platform in headers of their own."""
    wanted = request.headers.get("Access-Control-Request-Headers", "")
    return wanted if wanted and wanted.isascii() else _ALLOWED_HEADERS


def _check_host(request: web.Request) -> None:
    """Raise Refusal for a name that this gateway does not have."""
    host = request.headers.get("Host", "")
    if not request.app[HOSTS].has(host):
        name = host.partition(":")[0][:100]
        message = f"{name!r} is not a name of this gateway; if it should be, start it with --allowed-host {name}"
        raise Refusal(421, message, code="host_not_allowed")


def _check_origin(request: web.Request) -> None:
    """Raise Refusal for a page of another origin, which must not use a gateway that its visitor can reach. Browsers
    send the origin."""
    origin = request.headers.get("Origin")
    if origin and origin.partition("://")[2] != request.host and not _is_allowed(request, origin):
        message = f"pages from {origin[:100]!r} are not allowed; start the gateway with --cors-origin {origin[:100]}"
        raise Refusal(403, message, code="origin_not_allowed")


def _is_allowed(request: web.Request, origin: str) -> bool:
    allowed = request.app[CONFIG].cors_origins
    return origin in allowed or ("*" in allowed and origin.isascii())
