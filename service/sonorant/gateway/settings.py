"""The gateway's settings, parsed from the command line; a wrong setting ends the process here."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sonorant.client import __version__

FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    listen: str = "127.0.0.1:8000"
    servers: tuple[str, ...] = ("127.0.0.1:50051",)
    wyoming_listen: str | None = None  # None = do not serve Wyoming
    wyoming_key: str = ""  # for all Wyoming callers, because Home Assistant sends no key
    processes: int = 1
    default_format: str = "mp3"  # of POST /v1/audio/speech
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()  # names of this gateway, beside that of `listen`
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_connections: int = 10_000  # per process
    drain_grace_s: float = 30.0


def parse_args(argv: Sequence[str] | None = None) -> GatewayConfig:
    """Parse the command line. Exits with status 2 and a message if something is wrong."""
    parser = argparse.ArgumentParser(
        prog="sonorant-gateway",
        description="Lets unchanged clients of OpenAI, vLLM-Omni, SGLang-Omni, Cartesia and Home Assistant call "
        "Sonorant's gRPC servers, by HTTP, WebSocket and Wyoming.",
        epilog="The environment configures the connection to the servers, as for `sonorant`: SONORANT_CLIENT_TLS, "
        "SONORANT_CLIENT_CA, SONORANT_CLIENT_CERTIFICATE, SONORANT_CLIENT_KEY, and SONORANT_CLIENT_API_KEY for health "
        "checks. Callers' own API keys are passed on. See docs/gateway.md.",
        allow_abbrev=False,
    )
    default = GatewayConfig()
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {__version__}")
    add(
        "--listen",
        type=_address,
        default=default.listen,
        metavar="HOST:PORT",
        help=f"where to serve; default: {default.listen}",
    )
    add(
        "--server",
        type=_address,
        action="append",
        metavar="HOST:PORT",
        help=f"a gRPC server to call; may be repeated; default: {default.servers[0]}",
    )
    add(
        "--wyoming-listen",
        type=_address,
        metavar="HOST:PORT",
        help="where to serve Wyoming, for Home Assistant; without it Wyoming is not served",
    )
    add(
        "--wyoming-key",
        default="",
        metavar="KEY",
        help="API key for all Wyoming callers; the protocol has no keys of its own",
    )
    add("--processes", type=_positive, default=1, metavar="N", help="gateway processes that share the port; default: 1")
    add(
        "--default-format",
        choices=FORMATS,
        default=default.default_format,
        help="audio format of POST /v1/audio/speech when a request names none (mp3 for OpenAI, wav for vLLM-Omni and "
        "SGLang-Omni); "
        f"default: {default.default_format}",
    )
    add(
        "--cors-origin",
        action="append",
        metavar="ORIGIN",
        help="web origin whose pages may call, such as https://example.org, or * for all; may be repeated",
    )
    add(
        "--allowed-host",
        action="append",
        metavar="NAME",
        help="a DNS name by which this gateway is called; may be repeated; * = any name. Addresses, localhost and the "
        "host of --listen always are. A request for another name may come from a stranger's web page, and is refused",
    )
    add(
        "--tls-certificate",
        type=Path,
        metavar="FILE",
        help="PEM file of the certificate and its chain; may be replaced while the gateway runs",
    )
    add("--tls-key", type=Path, metavar="FILE", help="PEM file of the certificate's key")
    add(
        "--max-connections",
        type=_positive,
        default=default.max_connections,
        metavar="N",
        help=f"connections per process; default: {default.max_connections}",
    )
    add(
        "--drain-grace-s",
        type=_seconds,
        default=default.drain_grace_s,
        metavar="S",
        help=f"time that running calls have to finish after SIGTERM; default: {default.drain_grace_s}",
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
        allowed_hosts=tuple(known.allowed_host or ()),
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 0 and 86400")
    return value
