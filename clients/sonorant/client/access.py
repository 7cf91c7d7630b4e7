"""How to get into a server that is not open to everyone: TLS, a certificate of one's own, an API key."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

_PREFIX = "SONORANT_CLIENT_"

# gRPC itself tries a call again that a server or a balancer could not take at all.
_RETRY = {
    "maxAttempts": 4,
    "initialBackoff": "0.05s",
    "maxBackoff": "0.5s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
_SERVICE_CONFIG = {
    "methodConfig": [{"name": [{"service": "sonorant.tts.v1.TextToSpeechService"}], "retryPolicy": _RETRY}]
}
_OPTIONS = (
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    # A frozen server and a network that is gone say nothing: they are asked. Servers refuse to be asked more often.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Somebody waits for the next word; gRPC's own first pause is a second.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
)


@dataclass(frozen=True, slots=True)
class Access:
    api_key: str = ""
    tls: bool = False
    ca: Path | None = None  # PEM; without it the authorities that gRPC knows
    certificate: Path | None = None  # PEM, for servers that want one
    key: Path | None = None  # PEM

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Access":
        """SONORANT_CLIENT_API_KEY, _TLS (any value), _CA, _CERTIFICATE and _KEY; the files switch TLS on, too."""
        values = {name: environment.get(f"{_PREFIX}{name.upper()}", "") for name in cls.__dataclass_fields__}
        ca, certificate, key = (Path(values[name]) if values[name] else None for name in ("ca", "certificate", "key"))
        return cls(values["api_key"], bool(values["tls"] or ca or certificate), ca, certificate, key)

    def channel(self, target: str) -> Any:
        """Raises OSError for files that cannot be read."""
        if self.tls or self.ca or self.certificate:
            ca, key, certificate = (path and path.read_bytes() for path in (self.ca, self.key, self.certificate))
            channel = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(ca, key, certificate), _OPTIONS)
        else:
            channel = grpc.aio.insecure_channel(target, _OPTIONS)
        return _KeyedChannel(channel, self.api_key) if self.api_key else channel


class _KeyedChannel:
    """What a stub needs of a channel; every call carries the key. (grpc.aio's own way would wrap each stream.)"""

    def __init__(self, channel: grpc.aio.Channel, api_key: str) -> None:
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {api_key}"),)
        self.close = channel.close

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._keyed(self._channel.unary_unary(*args, **kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._keyed(self._channel.unary_stream(*args, **kwargs))

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return self._keyed(self._channel.stream_unary(*args, **kwargs))

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return self._keyed(self._channel.stream_stream(*args, **kwargs))

    def _keyed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, metadata: tuple[tuple[str, str], ...] = (), **kwargs: Any) -> Any:
            return method(*args, metadata=(*self._metadata, *metadata), **kwargs)

        return call
