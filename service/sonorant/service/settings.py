"""Every setting of the server: its names, its values and its help. `config.py` reads the sources.

A setting is declared once, as a field of a dataclass: here, or in sonorant.engine.config. It has one name, written in
three ways: `--talker-device` on the command line, SONORANT_TALKER_DEVICE in the environment, and `device` in the table
[talker] of the file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sonorant.engine import EngineConfig, MpsMode
from sonorant.hosting.tls import TlsFiles
from sonorant.service.voices.stored import StoredVoicesConfig
from sonorant.settings import (
    AUTO,
    as_address,
    as_auto,
    as_choice,
    as_count,
    as_device,
    as_list,
    as_positive,
    as_seconds,
    as_switch,
    setting,
    settings_of,
)

ENVIRONMENT_PREFIX = "SONORANT_"
BUILT_IN = "built-in"
STAGES_OF_MODELS = ("talker", "code2wav", "encoder")
STAGES = (*STAGES_OF_MODELS, "service")
LEAST_SESSIONS, SESSIONS_PER_STREAM = 1000, 2  # if `max_sessions` is AUTO: at any time most sessions are silent


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError(f"{text!r} is not a URL; for example http://127.0.0.1:4318/v1/traces")
    return text


def _database(text: str) -> str:
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("not a PostgreSQL URL; for example postgresql://sonorant@db.example.com/sonorant")
    return text


def _services(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    if not set(names) <= {"health", "reflection"}:
        raise ValueError(f"{text!r} must be health, reflection, health,reflection or empty")
    return names


def _indices(text: str) -> tuple[int, ...]:
    indices = tuple(as_count(index.strip()) for index in text.split(","))
    if len(set(indices)) < len(indices):
        raise ValueError(f"{text!r} names a GPU twice; to run several worker pairs on each GPU, set pairs")
    return indices


@dataclass(frozen=True, slots=True)
class Pairs:
    """Settings that decide which worker pairs there are."""

    model: tuple[str, ...] = setting(
        (BUILT_IN,),
        as_list(str),
        "DIR|PRESET",
        "checkpoint folder, or name of a preset; repeat the flag to serve several",
        repeats=True,
    )
    device: str | None = setting(None, as_device, "auto|cpu|cuda:N", "device of both the talker and Code2Wav")
    gpus: tuple[int, ...] | None = setting(
        None, _indices, "N,N,...", "instead of --device: run a worker pair of each model on each of these GPUs"
    )
    pairs: int = setting(
        1,
        as_positive,
        "N",
        "worker pairs of each model; with --gpus, on each GPU",
    )
    standby: int = setting(
        AUTO,
        as_auto(as_count),
        "auto|N",
        "spare pairs of each model, loaded and idle, which take over when a pair goes down; auto: one, if the only "
        "pair is on a GPU that has room for a second one with as many slots",
    )


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    engines: tuple[EngineConfig, ...]  # one per worker pair
    mps: MpsMode = setting(
        "auto",
        as_choice("auto", "true", "false"),
        "auto|true|false",
        "start a CUDA MPS daemon for the workers; auto: if a talker and its Code2Wav share a GPU and MPS is possible",
    )
    processes: int = setting(
        AUTO,
        as_auto(as_positive),
        "auto|N",
        "server processes that share the port and the workers; clients' connections are spread over them; auto: on a "
        "GPU one for each 2 cores, at most 8; else 1",
    )
    listen: str = setting("127.0.0.1:50051", as_address, "HOST:PORT", "where to serve gRPC; port 0 picks a free one")
    early_port: bool = setting(
        True,
        as_switch,
        "true|false",
        "listen while models load, and tell callers ENGINE_STARTING, so that they wait; false: behind a proxy that "
        "does not ask for health, or for clients with several addresses that go to the next if nobody listens",
    )
    metrics_listen: str | None = setting(
        None, as_address, "HOST:PORT", "where to serve GET /metrics and GET /ready; without it, neither is served"
    )
    admin_listen: str | None = setting(
        None, as_address, "HOST:PORT", "where to serve channelz and reflection, for operators only"
    )
    traces: str | None = setting(
        None, _url, "URL", "OTLP collector that spans are sent to, such as http://HOST:4318/v1/traces"
    )
    # An idle Speak session takes no place in the engine.
    max_sessions: int = setting(
        AUTO,
        as_auto(as_positive),
        "auto|N",
        "most calls that may speak or explain at a time, in all server processes together; auto: twice the streams of "
        "all workers, and at least 1000",
    )
    max_text_chars: int = setting(100_000, as_positive, "N", "longest text of one utterance, in characters")
    drain_delay_s: int = setting(
        0, as_count, "S", "seconds after SIGTERM in which new calls are still taken, while /ready and health say no"
    )
    drain_grace_s: float = setting(30.0, as_seconds, "S", "seconds that running calls have to finish after SIGTERM")
    api_keys: Path | None = setting(
        None, Path, "FILE", "TOML file of callers and the hashes of their keys; without it, anyone may call"
    )
    receipt_key_file: Path | None = setting(
        None,
        Path,
        "FILE",
        "file with a secret, the same for all servers of a deployment: an utterance that goes on at another server is "
        "then not charged again to its key; without it, each server makes its own",
    )
    open_services: tuple[str, ...] = setting(
        ("health",), _services, "health,reflection", "services that may be called without a key"
    )
    voices_dir: Path | None = setting(
        None, Path, "DIR", "folder for the voices that callers make; without it, callers cannot make any"
    )
    voices_url: str | None = setting(
        None,
        _database,
        "URL",
        "instead of --voices-dir: a PostgreSQL database, in which several servers share voices and limits",
    )
    max_voices: int = setting(10_000, as_positive, "N", "most voices kept, of all callers together")
    max_voice_bytes: int = setting(1_000_000_000, as_positive, "N", "most bytes of all kept voices together")
    phrase_cache_bytes: int = setting(
        0, as_count, "N", "bytes of memory for phrases that are often spoken with the same seed; 0 turns this cache off"
    )
    phrases: Path | None = setting(
        None, Path, "FILE", "phrases to put into the cache at the start: one SynthesizeRequest in JSON per line"
    )
    tls_certificate: Path | None = setting(None, Path, "FILE", "PEM file of the server's certificate and its chain")
    tls_key: Path | None = setting(None, Path, "FILE", "PEM file of the certificate's key")
    tls_client_ca: Path | None = setting(
        None, Path, "FILE", "PEM file of the authority that must have signed the clients' certificates"
    )

    request_timeout_s: float = 10.0  # a call ends whose first message does not come within this time
    voice_cache_bytes: int = 100_000_000  # of memory, for voices used lately
    receipt_key: bytes = b""  # what all server processes have in common, in place of what is in the file

    def with_sizes(self, engines: Sequence[EngineConfig]) -> "ServiceConfig":
        """Replace automatic sizes: `engines` as `sonorant.engine.sized` returns them, and `max_sessions` from them."""
        max_sessions = self.max_sessions
        if max_sessions == AUTO:
            num_streams = sum(engine.max_streams for engine in engines if not engine.is_standby)
            max_sessions = max(LEAST_SESSIONS, SESSIONS_PER_STREAM * num_streams)
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
        """The config of the first worker pair."""
        return self.engines[0]


SETTINGS = (*settings_of(Pairs), *settings_of(EngineConfig), *settings_of(ServiceConfig, "service"))

# What a person wants to do, and the settings for it, in the order of `--help`.
HELP = {
    "choose what speaks, and where": "model device gpus talker_device code2wav_device load_format dtype "
    "code2wav_dtype talker_weights enforce_eager",
    "say where to listen": "listen early_port metrics_listen admin_listen traces",
    "say who may call": "api_keys open_services tls_certificate tls_key tls_client_ca receipt_key_file",
    "serve more at a time": "processes pairs num_slots max_queued_streams max_sessions max_context stored_streams "
    "max_text_chars",
    "share the machine": "cpu_threads gpu_memory_gib num_pages mps",
    "keep voices and phrases": "voices_dir voices_url max_voices max_voice_bytes max_recording_wait_s "
    "phrase_cache_bytes phrases",
    "survive failures, and stop": "standby hang_timeout_s drain_delay_s drain_grace_s",
}
