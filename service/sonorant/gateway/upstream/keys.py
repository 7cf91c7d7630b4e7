"""Which keys a server admits. Only servers know, so the gateway asks, before it spends anything on a caller."""

import hashlib
import time

from sonorant.gateway.upstream.calls import UpstreamCall
from sonorant.gateway.upstream.servers import Servers
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest

FRESH_S = 60.0
MAX_KEYS = 4096  # remembered


class Keys:
    """Remembers answers for a short time, so that a caller's next request does not wait for another call. The call that
    speaks carries the key, too: a key that was removed meanwhile gets no further than its body."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._admitted: dict[bytes, float] = {}  # hash of the key: until when, in the order of these times

    def __len__(self) -> int:
        return len(self._admitted)

    async def check(self, call: UpstreamCall) -> None:
        """Raise Refusal, a server's own, unless a server admits this key, or admits callers without one."""
        name = hashlib.sha256(call.key.encode()).digest()
        if self._admitted.get(name, 0.0) > time.monotonic():
            return
        await self._servers.unary(lambda server: server.speech.GetCapabilities, GetCapabilitiesRequest(), call)
        self._admitted.pop(name, None)
        if len(self._admitted) >= MAX_KEYS:
            del self._admitted[next(iter(self._admitted))]
        self._admitted[name] = time.monotonic() + FRESH_S
