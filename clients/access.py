"""How to get into a server that is not open to everyone: TLS, a certificate of one's own, an API key."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc

_PREFIX = "SONORANT_CLIENT_"


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
            channel = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(ca, key, certificate))
        else:
            channel = grpc.aio.insecure_channel(target)
        return _KeyedChannel(channel, self.api_key) if self.api_key else channel


class _KeyedChannel:
    """What a stub needs of a channel; every call carries the key. (grpc.aio's own way would wrap each stream.)"""

    def __init__(self, channel: grpc.aio.Channel, api_key: str) -> None:
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {api_key}"),)
        self.close = channel.close

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return partial(self._channel.unary_unary(*args, **kwargs), metadata=self._metadata)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return partial(self._channel.unary_stream(*args, **kwargs), metadata=self._metadata)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return partial(self._channel.stream_unary(*args, **kwargs), metadata=self._metadata)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return partial(self._channel.stream_stream(*args, **kwargs), metadata=self._metadata)
