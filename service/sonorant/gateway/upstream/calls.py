"""The identity of a caller, which goes to the server with every RPC: API key, request id, trace and address. Pure.

Only the server checks keys; the gateway passes them on. Browsers cannot set headers on a WebSocket, so there the key
may come as a subprotocol, `sonorant-key.KEY`. It never comes in the URL, which ends up in logs.

The address lets the server tell apart the clients of this gateway, which all call on the gateway's few connections.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sonorant.gateway.errors import Refusal

SUBPROTOCOL = "sonorant"
KEY_SUBPROTOCOL = "sonorant-key."

_KEY = re.compile(r"[!-~]{1,512}")  # printable ASCII; a longer key would not fit into gRPC's metadata
_REQUEST_ID = re.compile(r"[!-~]{1,64}")
_FORWARDED_FOR = re.compile(r"[ -~]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class UpstreamCall:
    request_id: str
    key: str = ""
    traceparent: str = ""
    forwarded_for: str = ""  # the addresses from the first client on, as far as proxies tell them

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        pairs = (
            ("x-request-id", self.request_id),
            ("authorization", f"Bearer {self.key}" if self.key else ""),
            ("traceparent", self.traceparent),
            ("x-forwarded-for", self.forwarded_for),
        )
        return tuple((name, value) for name, value in pairs if value)


def call_of(headers: Mapping[str, str], subprotocols: Iterable[str] = (), address: str = "") -> UpstreamCall:
    """Read the caller's identity from the headers, and its address. Raises Refusal for an impossible key."""
    key = _key(headers, subprotocols)
    if key and not _KEY.fullmatch(key):
        raise Refusal(
            401, "the API key has characters that no key can have; send it as it was given", code="invalid_api_key"
        )
    wanted = headers.get("X-Request-Id", "")
    request_id = wanted if _REQUEST_ID.fullmatch(wanted) else new_request_id()
    traceparent = headers.get("traceparent", "")
    told = headers.get("X-Forwarded-For", "")
    return UpstreamCall(
        request_id,
        key,
        traceparent if _TRACEPARENT.fullmatch(traceparent) else "",
        f"{told}, {address}" if _FORWARDED_FOR.fullmatch(told) else address,
    )


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


def _key(headers: Mapping[str, str], subprotocols: Iterable[str]) -> str:
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    if key := headers.get("X-API-Key", "").strip():
        return key
    offered = (
        name.strip().removeprefix(KEY_SUBPROTOCOL) for name in subprotocols if name.strip().startswith(KEY_SUBPROTOCOL)
    )
    return next(offered, "")
