"""The settings of the gateway, from the command line; anything that is wrong ends the process here."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    listen: str = "127.0.0.1:8000"
    servers: tuple[str, ...] = ("127.0.0.1:50051",)
    wyoming_listen: str | None = None  # no Wyoming
    wyoming_key: str = ""  # Home Assistant sends none
    processes: int = 1
    default_format: str = "mp3"  # of POST /v1/audio/speech
    cors_origins: tuple[str, ...] = ()
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_connections: int = 10_000  # per process
    drain_grace_s: float = 30.0


def parse_args(argv: Sequence[str] | None = None) -> GatewayConfig:
    """Exits with status 2 and a message on anything that is wrong."""
    parser = argparse.ArgumentParser(
        prog="sonorant-gateway",
        description="HTTP, WebSocket and Wyoming in front of Sonorant's gRPC servers, for clients people already have: "
        "OpenAI, vLLM-Omni, SGLang-Omni, Cartesia, Home Assistant.",
        epilog="TLS to the servers and a key for their health are in the environment: SONORANT_CLIENT_TLS, _CA, "
        "_CERTIFICATE, _KEY and _API_KEY. Keys of callers are passed on. docs/gateway.md says more.",
        allow_abbrev=False,
    )
    default = GatewayConfig()
    add = parser.add_argument
    add("--listen", type=_address, default=default.listen, metavar="HOST:PORT", help=f"default: {default.listen}")
    add(
        "--server",
        type=_address,
        action="append",
        metavar="HOST:PORT",
        help=f"a gRPC server; again for each further one; default: {default.servers[0]}",
    )
    add(
        "--wyoming-listen",
        type=_address,
        metavar="HOST:PORT",
        help="for Home Assistant; without it there is no Wyoming",
    )
    add("--wyoming-key", default="", metavar="KEY", help="the API key of all who come by Wyoming, which knows none")
    add("--processes", type=_positive, default=1, metavar="N", help="on the same port; default: 1")
    add(
        "--default-format",
        choices=FORMATS,
        default=default.default_format,
        help="of POST /v1/audio/speech without response_format; OpenAI's is mp3, vLLM-Omni's and SGLang-Omni's wav",
    )
    add(
        "--cors-origin",
        action="append",
        metavar="ORIGIN",
        help="whose pages in browsers may call, https://example.org or *; again for each further one",
    )
    add("--tls-certificate", type=Path, metavar="FILE", help="PEM, with its chain; may be replaced while it runs")
    add("--tls-key", type=Path, metavar="FILE", help="PEM")
    add("--max-connections", type=_positive, default=default.max_connections, metavar="N", help="per process")
    add(
        "--drain-grace-s",
        type=_seconds,
        default=default.drain_grace_s,
        metavar="S",
        help="for running calls after SIGTERM",
    )
    known = parser.parse_args(argv)
    if (known.tls_certificate is None) != (known.tls_key is None):
        parser.error("TLS needs both --tls-certificate and --tls-key")
    return GatewayConfig(
        listen=known.listen,
        servers=tuple(known.server or default.servers),
        wyoming_listen=known.wyoming_listen,
        wyoming_key=known.wyoming_key,
        processes=known.processes,
        default_format=known.default_format,
        cors_origins=tuple(known.cors_origin or ()),
        tls_certificate=known.tls_certificate,
        tls_key=known.tls_key,
        max_connections=known.max_connections,
        drain_grace_s=known.drain_grace_s,
    )


def split_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not host or not colon or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT; for example 127.0.0.1:8000 or [::]:8000")
    return text


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 0 and 86400")
    return value
