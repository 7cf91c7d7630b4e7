"""Every setting of the server: its names, what it takes, and what is said about it. Nothing is read here.

A setting is declared once, as a field of a dataclass: here, or in sonorant.engine.config. It has one name, written in
three ways: `--talker-device` on the command line, SONORANT_TALKER_DEVICE in the environment, and in the file `device`
in the table of its stage, [talker].
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sonorant.engine import (
    AUTO,
    EngineConfig,
    MpsMode,
    Setting,
    as_auto,
    as_choice,
    as_count,
    as_device,
    as_positive,
    as_seconds,
    as_switch,
    setting,
    settings_of,
)
from sonorant.service.access.tls import TlsFiles
from sonorant.service.voices.stored import StoredVoicesConfig

ENVIRONMENT_PREFIX = "SONORANT_"
BUILT_IN = "built-in"
STAGES_OF_MODELS = ("talker", "code2wav", "encoder")
STAGES = (*STAGES_OF_MODELS, "service")
LEAST_SESSIONS, SESSIONS_PER_STREAM = 1000, 2  # where `max_sessions` is AUTO: of a conversation most say nothing


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not host or not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT; for example 127.0.0.1:50051 or [::]:50051")
    return text


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError(f"{text!r} is not a URL; for example http://127.0.0.1:4318/v1/traces")
    return text


def _database(text: str) -> str:
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("it is not a URL of PostgreSQL; for example postgresql://sonorant@db.example.com/sonorant")
    return text


def _services(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    if not set(names) <= {"health", "reflection"}:
        raise ValueError(f"{text!r} is none of health, reflection, both with a comma, or nothing")
    return names


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _indices(text: str) -> tuple[int, ...]:
    indices = tuple(as_count(index.strip()) for index in text.split(","))
    if len(set(indices)) < len(indices):
        raise ValueError(f"{text!r} names a GPU twice; for several worker pairs on each use pairs")
    return indices


@dataclass(frozen=True, slots=True)
class Pairs:
    """Which worker pairs there are: what is said of all of them at once."""

    model: tuple[str, ...] = setting(
        (BUILT_IN,), _names, "DIR|PRESET", "checkpoint folder, or name of a preset; give it again to serve several"
    )
    device: str | None = setting(None, as_device, "auto|cpu|cuda:N", "where talker and Code2Wav both run")
    gpus: tuple[int, ...] | None = setting(
        None, _indices, "N,N,...", "instead of --device: run a worker pair of each model on each of these GPUs"
    )
    pairs: int = setting(1, as_positive, "N", "worker pairs of each model, and on each GPU of --gpus")
    standby: int = setting(
        0,
        as_count,
        "N",
        "spare pairs of each model, loaded and idle, which take over when a pair goes down",
    )


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    engines: tuple[EngineConfig, ...]  # of each worker pair
    mps: MpsMode = setting(
        "auto",
        as_choice("auto", "true", "false"),
        "auto|true|false",
        "start a CUDA MPS daemon for the workers; auto: where a talker and its Code2Wav share a GPU and it is possible",
    )
    listen: str = setting("127.0.0.1:50051", _address, "HOST:PORT", "where to serve gRPC; port 0 picks a free one")
    metrics_listen: str | None = setting(
        None, _address, "HOST:PORT", "where to serve GET /metrics and GET /ready; without it there are neither"
    )
    admin_listen: str | None = setting(
        None, _address, "HOST:PORT", "where to serve channelz and reflection, for operators only"
    )
    traces: str | None = setting(
        None, _url, "URL", "OTLP collector that spans are sent to, such as http://HOST:4318/v1/traces"
    )
    # An idle Speak session takes no place in the engine.
    max_sessions: int = setting(
        AUTO,
        as_auto(as_positive),
        "auto|N",
        "calls that may speak or explain at the same time; auto: twice the streams of all workers, and at least 1000",
    )
    max_text_chars: int = setting(4096, as_positive, "N", "longest text of one utterance, in characters")
    drain_delay_s: int = setting(
        0, as_count, "S", "after SIGTERM, keep taking new calls for so long while readiness already says no"
    )
    drain_grace_s: float = setting(30.0, as_seconds, "S", "time that running calls have to finish after SIGTERM")
    request_timeout_s: float = setting(
        10.0, as_seconds, "S", "end a call whose first message has not come after this time"
    )
    api_keys: Path | None = setting(
        None, Path, "FILE", "TOML file of callers and the hashes of their keys; without it anyone may call"
    )
    open_services: tuple[str, ...] = setting(
        ("health",), _services, "health,reflection", "services that may be called without a key"
    )
    riva: bool = setting(True, as_switch, "true|false", "serve clients of NVIDIA Riva as well")
    voices_dir: Path | None = setting(
        None, Path, "DIR", "where voices that callers make are kept; without it callers cannot make any"
    )
    voices_url: str | None = setting(
        None,
        _database,
        "URL",
        "instead of --voices-dir: a PostgreSQL database; several servers share its voices and limits",
    )
    max_voices: int = setting(10_000, as_positive, "N", "voices that are kept, of all callers together")
    max_voice_bytes: int = setting(1_000_000_000, as_positive, "N", "size of all files of kept voices")
    voice_cache_bytes: int = setting(100_000_000, as_count, "N", "memory for voices that were used lately")
    phrase_cache_bytes: int = setting(
        0, as_count, "N", "memory for phrases that are spoken again and again with the same seed; 0 keeps none"
    )
    phrases: Path | None = setting(
        None, Path, "FILE", "what the phrase cache holds from the start: a SynthesizeRequest in JSON on each line"
    )
    tls_certificate: Path | None = setting(None, Path, "FILE", "PEM file of the server's certificate and its chain")
    tls_key: Path | None = setting(None, Path, "FILE", "PEM file of the certificate's key")
    tls_client_ca: Path | None = setting(
        None, Path, "FILE", "PEM file of the authority that clients' certificates must come from"
    )

    def with_sizes(self, engines: Sequence[EngineConfig]) -> "ServiceConfig":
        """With the sizes of this machine; see `sonorant.engine.sized`."""
        max_sessions = self.max_sessions
        if max_sessions == AUTO:
            max_sessions = max(LEAST_SESSIONS, SESSIONS_PER_STREAM * sum(engine.max_streams for engine in engines))
        return replace(self, engines=tuple(engines), max_sessions=max_sessions)

    @property
    def stored_voices(self) -> StoredVoicesConfig:
        return StoredVoicesConfig(self.max_voices, self.max_voice_bytes, self.voice_cache_bytes)

    @property
    def tls(self) -> TlsFiles | None:
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_key, self.tls_client_ca)

    @property
    def engine(self) -> EngineConfig:
        """Of the first worker pair."""
        return self.engines[0]


SETTINGS = (*settings_of(Pairs), *settings_of(EngineConfig), *settings_of(ServiceConfig, "service"))


def variable(setting: Setting) -> str:
    """Its name in the environment."""
    return ENVIRONMENT_PREFIX + setting.name.upper()
