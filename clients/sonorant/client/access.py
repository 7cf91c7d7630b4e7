"""Channels to servers that are not open to everyone: TLS, a client certificate, an API key."""

import json
import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

_PREFIX = "SONORANT_CLIENT_"
_OFF = ("", "0", "false", "no", "off")

# gRPC itself retries a call that a server or a balancer could not accept at all.
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
_IN_TURN: dict[str, dict[str, str]] = {"round_robin": {}}
_OPTIONS = (
    # Pings: a frozen server or a dead network gives no other sign. Servers refuse more frequent pings.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A listener is waiting, and gRPC's own first pause is a second.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    # gRPC would give all channels of this process to one server the same connection, and a server of several processes
    # serves each connection from one of them.
    ("grpc.use_local_subchannel_pool", 1),
)
_FIRST = (("grpc.service_config", json.dumps(_SERVICE_CONFIG)),)
# The second connection is for when a server behind the first is silent or starting. It goes to all addresses in turn. A
# frozen server accepts a connection and then says nothing on it, so the next address is tried soon.
_SECOND = (
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG | {"loadBalancingConfig": [_IN_TURN]})),
    ("grpc.happy_eyeballs_connection_attempt_delay_ms", 100),
)
# The proxy that `http_proxy` names is for other machines: it would look for such a server on its own.
_THIS_MACHINE = re.compile(r"(dns:(///)?|ipv[46]:)?(localhost|127(\.\d+){3}|\[?::1\]?)(:\d+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Access:
    api_key: str = ""
    tls: bool = False
    ca: Path | str | None = None  # PEM; None = the authorities that gRPC knows
    certificate: Path | str | None = None  # PEM, for servers that ask clients for one
    key: Path | str | None = None  # PEM

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Access":
        """Read SONORANT_CLIENT_API_KEY, _TLS (1), _CA, _CERTIFICATE and _KEY; _CA and _CERTIFICATE switch TLS on,
        too."""
        values = {name: environment.get(f"{_PREFIX}{name.upper()}", "") for name in cls.__dataclass_fields__}
        ca, certificate, key = (Path(values[name]) if values[name] else None for name in ("ca", "certificate", "key"))
        tls = values["tls"].lower() not in _OFF
        return cls(values["api_key"], bool(tls or ca or certificate), ca, certificate, key)

    def channel(self, target: str, *, second: bool = False) -> Any:
        """Open a channel to `target`; `second`: there is one to the same target already.

        Raises OSError if a file cannot be read, and ValueError if an API key or a PEM file is not one.
        """
        self.check()
        options = _OPTIONS + (_SECOND if second else _FIRST)
        if _THIS_MACHINE.fullmatch(target):
            options += (("grpc.enable_http_proxy", 0),)
        if self.tls or self.ca or self.certificate:
            ca, key, certificate = (path and Path(path).read_bytes() for path in (self.ca, self.key, self.certificate))
            channel = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(ca, key, certificate), options)
        else:
            channel = grpc.aio.insecure_channel(target, options)
        return _KeyedChannel(channel, self.api_key) if self.api_key else channel

    def check(self) -> None:
        """Check the API key and the files, because gRPC would say little about what is wrong with them, and ends the
        process if a certificate comes without its key.

        Raises OSError if a file cannot be read, and ValueError if an API key or a PEM file is not one.
        """
        if not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ValueError(
                "the API key has a line break or a character that is not ASCII; copy it again: no server has such a key"
            )
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a client's certificate and its key belong together: give both or neither")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca is not None:
            try:
                context.load_verify_locations(cadata=Path(self.ca).read_bytes().decode("ascii", "ignore"))
            except (ssl.SSLError, ValueError):
                raise ValueError(f"{self.ca} has no certificate in PEM format") from None
        if self.certificate is not None and self.key is not None:
            for path in (self.certificate, self.key):
                Path(path).open("rb").close()  # unlike load_cert_chain, its error names the file
            try:
                context.load_cert_chain(self.certificate, self.key, password="")
            except ssl.SSLError as error:
                why = error.reason or error
                raise ValueError(
                    f"{self.certificate} and {self.key} are not a certificate and its key, both in PEM format ({why})"
                ) from None


class _KeyedChannel:
    """A channel as far as a stub needs one, which adds the API key to every call.

    An interceptor of grpc.aio would wrap each stream.
    """

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
