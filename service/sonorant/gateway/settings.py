"""Every setting of the gateway: its name, its values and its help. A wrong setting ends the process here.

A setting has one name, written in three ways: `--max-connections` on the command line, SONORANT_GATEWAY_MAX_CONNECTIONS
in the environment, and `max_connections` in a TOML file.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonorant.client import __version__
from sonorant.client.configs import TEXT_FORMATS
from sonorant.settings import (
    AUTO,
    as_address,
    as_auto,
    as_choice,
    as_list,
    as_positive,
    as_seconds,
    setting,
    settings_of,
    with_settings,
)
from sonorant.settings.sources import ConfigError, Sources

FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
_FORMAT_HELP = "how texts at %s are written when a request does not say it; default: the server's, plain"


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    listen: str = setting("127.0.0.1:8000", as_address, "HOST:PORT", "where to serve")
    servers: tuple[str, ...] = setting(
        ("127.0.0.1:50051",),
        as_list(as_address),
        "HOST:PORT",
        "a gRPC server to call; may be repeated",
        flag="server",
        repeats=True,
    )
    wyoming_listen: str | None = setting(
        None, as_address, "HOST:PORT", "where to serve Wyoming, for Home Assistant; without it Wyoming is not served"
    )
    wyoming_key: str = setting("", str, "KEY", "API key for all Wyoming callers; the protocol has no keys of its own")
    processes: int = setting(
        AUTO,
        as_auto(as_positive),
        "auto|N",
        "gateway processes that share the port; auto: one for each 2 cores, at most 8",
    )
    default_format: str = setting(
        "mp3",
        as_choice(*FORMATS),
        "|".join(FORMATS),
        "audio format of POST /v1/audio/speech when a request names none (mp3 for OpenAI, wav for vLLM-Omni and "
        "SGLang-Omni)",
    )
    text_format: str = setting(
        "", as_choice("", *TEXT_FORMATS), "|".join(TEXT_FORMATS), _FORMAT_HELP % "OpenAI's doors"
    )
    cartesia_text_format: str = setting(
        "", as_choice("", *TEXT_FORMATS), "|".join(TEXT_FORMATS), _FORMAT_HELP % "Cartesia's door"
    )
    wyoming_text_format: str = setting(
        "", as_choice("", *TEXT_FORMATS), "|".join(TEXT_FORMATS), _FORMAT_HELP % "Wyoming's door"
    )
    cors_origins: tuple[str, ...] = setting(
        (),
        as_list(str),
        "ORIGIN",
        "web origin whose pages may call, such as https://example.org, or * for all; may be repeated",
        flag="cors_origin",
        repeats=True,
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        as_list(str),
        "NAME",
        "a DNS name by which this gateway is called; may be repeated; * = any name. Addresses, localhost and the host "
        "of --listen always are. A request for another name may come from a stranger's web page, and is refused",
        flag="allowed_host",
        repeats=True,
    )
    tls_certificate: Path | None = setting(
        None,
        Path,
        "FILE",
        "PEM file of the certificate and its chain; may be replaced while the gateway runs",
    )
    tls_key: Path | None = setting(None, Path, "FILE", "PEM file of the certificate's key")
    max_connections: int = setting(10_000, as_positive, "N", "connections per process")
    drain_grace_s: float = setting(30.0, as_seconds, "S", "time that running calls have to finish after SIGTERM")


SOURCES = Sources("SONORANT_GATEWAY_", settings_of(GatewayConfig))


def parse_args(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> GatewayConfig:
    """Read all sources and return the settings. Exits with status 2 and a message if any of them is wrong."""
    parser = argparse.ArgumentParser(
        prog="sonorant-gateway",
        description="Lets unchanged clients of OpenAI, vLLM-Omni, SGLang-Omni, Cartesia and Home Assistant call "
        "Sonorant's gRPC servers, by HTTP, WebSocket and Wyoming.",
        epilog="Each setting can also be an environment variable (SONORANT_GATEWAY_MAX_CONNECTIONS for "
        "--max-connections) or a key of the TOML file (max_connections). The environment configures the connection "
        "to the servers, as for `sonorant`: SONORANT_CLIENT_TLS, "
        "SONORANT_CLIENT_CA, SONORANT_CLIENT_CERTIFICATE, SONORANT_CLIENT_KEY, and SONORANT_CLIENT_API_KEY for health "
        "checks. Callers' own API keys are passed on. See docs/gateway.md.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return SOURCES.parse(parser, argv, environment, _config)


def _config(values: dict[str, Any]) -> GatewayConfig:
    config = with_settings(GatewayConfig(), values)
    if (config.tls_certificate is None) != (config.tls_key is None):
        raise ConfigError("TLS needs both --tls-certificate and --tls-key")
    return config
