"""Settings of the server from its command line. A bad value ends the process here, before anything is loaded."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine import BUILTIN_VOICE_DIR, CheckpointError, EngineConfig, resolve_model
from service.tls import TlsFiles


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    engine: EngineConfig
    listen: str = "127.0.0.1:50051"
    max_sessions: int = 1000  # synthesis RPCs at the same time; an idle Speak session takes no place in the engine
    max_text_chars: int = 4096
    drain_grace_s: float = 30.0
    request_timeout_s: float = 10.0  # for the first message of a call to come
    api_keys: Path | None = None  # None: anyone may call
    open_services: tuple[str, ...] = ("health",)  # of health and reflection; these need no key
    tls: TlsFiles | None = None
    metrics_listen: str | None = None  # no metrics


def parse_args(argv: Sequence[str] | None = None) -> ServiceConfig:
    """Exits with status 2 and a message on a bad flag."""
    defaults = ServiceConfig(EngineConfig(model=BUILTIN_VOICE_DIR))
    engine = defaults.engine
    parser = argparse.ArgumentParser(
        prog="sonorant-server",
        description="Streaming text-to-speech over gRPC.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--listen", type=_address, default=defaults.listen, metavar="HOST:PORT", help="port 0 picks a free one")
    add("--model", default="built-in", metavar="DIR|PRESET", help="checkpoint folder, or name of a preset")
    add("--load-format", choices=("safetensors", "dummy"), default=engine.load_format, help="dummy: random weights")
    add("--dtype", choices=("auto", "float32", "bfloat16"), default=engine.dtype, help="auto: float32 on CPU")
    add("--talker-device", type=_device, default=engine.talker_device, metavar="auto|cpu|cuda:N", help="of the talker")
    add(
        "--code2wav-device",
        type=_device,
        default=engine.code2wav_device,
        metavar="auto|cpu|cuda:N",
        help="of the codec",
    )
    add("--num-slots", type=_positive, default=engine.num_slots, metavar="N", help="streams stepped together")
    add("--max-queued-streams", type=_count, default=engine.max_queued_streams, metavar="N", help="waiting for a slot")
    add(
        "--max-context",
        type=_positive,
        default=engine.max_context,
        metavar="N",
        help="prompt rows + frames per stream",
    )
    add(
        "--cpu-threads",
        type=_count,
        default=engine.cpu_threads,
        metavar="N",
        help="per worker; 0 = half of the cores",
    )
    add("--hang-timeout-s", type=_seconds, default=engine.hang_timeout_s, metavar="S", help="a step longer than this")
    add("--max-sessions", type=_positive, default=defaults.max_sessions, metavar="N", help="RPCs at the same time")
    add("--max-text-chars", type=_positive, default=defaults.max_text_chars, metavar="N", help="per utterance")
    add("--drain-grace-s", type=_seconds, default=defaults.drain_grace_s, metavar="S", help="after SIGTERM")
    add(
        "--request-timeout-s",
        type=_seconds,
        default=defaults.request_timeout_s,
        metavar="S",
        help="for the first message of a call",
    )
    add(
        "--api-keys", type=Path, metavar="FILE", help="callers and the hashes of their keys; without it anyone may call"
    )
    add(
        "--open-services",
        type=_services,
        default=defaults.open_services,
        metavar="health,reflection",
        help="what needs no key",
    )
    add("--metrics-listen", type=_address, metavar="HOST:PORT", help="GET /metrics for Prometheus")
    add("--tls-certificate", type=Path, metavar="FILE", help="PEM, with its chain")
    add("--tls-key", type=Path, metavar="FILE", help="PEM")
    add("--tls-client-ca", type=Path, metavar="FILE", help="PEM; clients must have a certificate of it")
    args = parser.parse_args(argv)
    if (args.tls_certificate is None) != (args.tls_key is None):
        parser.error("--tls-certificate and --tls-key go together")
    if args.tls_client_ca is not None and args.tls_key is None:
        parser.error("--tls-client-ca needs --tls-certificate and --tls-key")
    return ServiceConfig(
        engine=EngineConfig(
            model=_model(parser, args.model),
            load_format=args.load_format,
            dtype=args.dtype,
            talker_device=args.talker_device,
            code2wav_device=args.code2wav_device,
            num_slots=args.num_slots,
            max_queued_streams=args.max_queued_streams,
            max_context=args.max_context,
            cpu_threads=args.cpu_threads,
            hang_timeout_s=args.hang_timeout_s,
        ),
        listen=args.listen,
        max_sessions=args.max_sessions,
        max_text_chars=args.max_text_chars,
        drain_grace_s=args.drain_grace_s,
        request_timeout_s=args.request_timeout_s,
        api_keys=args.api_keys,
        open_services=args.open_services,
        metrics_listen=args.metrics_listen,
        tls=args.tls_key and TlsFiles(args.tls_certificate, args.tls_key, args.tls_client_ca),
    )


def _model(parser: argparse.ArgumentParser, name: str) -> Path:
    if name == "built-in":
        return BUILTIN_VOICE_DIR
    try:
        return resolve_model(name)
    except CheckpointError as error:
        parser.error(f"argument --model: {error}")


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not host or not colon or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT; for example 127.0.0.1:50051 or [::]:50051")
    return text


def _device(text: str) -> str:
    kind, _, index = text.partition(":")
    if text not in ("auto", "cpu", "cuda") and not (kind == "cuda" and index.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is none of auto, cpu, cuda, cuda:N")
    return text


def _services(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    if not set(names) <= {"health", "reflection"}:
        raise argparse.ArgumentTypeError(f"{text!r} is none of health, reflection, both with a comma, or nothing")
    return names


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def _positive(text: str) -> int:
    if _count(text) == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds between 0 and 86400")
    return value
