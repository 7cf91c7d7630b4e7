"""Every setting of the server: its names, what it takes, and what is said about it. Nothing is read here.

A setting has one name, written in three ways: `--talker-device` on the command line, SONORANT_TALKER_DEVICE in the
environment, and in the file `device` in the table of its stage, [talker].
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENVIRONMENT_PREFIX = "SONORANT_"
STAGES_OF_MODELS = ("talker", "code2wav", "encoder")
STAGES = (*STAGES_OF_MODELS, "service")


@dataclass(frozen=True, slots=True)
class Setting:
    name: str  # of the field of EngineConfig or ServiceConfig, where it is one
    stage: str  # "" = of no stage, or of all of them
    parse: Callable[[str], Any]  # raises ValueError with what would be right
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def key(self) -> str:
        """In its table of the file."""
        return self.name.removeprefix(f"{self.stage}_")


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return parse


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not host or not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT; for example 127.0.0.1:50051 or [::]:50051")
    return text


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError(f"{text!r} is not a URL; for example http://127.0.0.1:4318/v1/traces")
    return text


def _device(text: str) -> str:
    kind, _, index = text.partition(":")
    if text not in ("auto", "cpu", "cuda") and not (kind == "cuda" and index.isdecimal()):
        raise ValueError(f"{text!r} is none of auto, cpu, cuda, cuda:N")
    return text


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _services(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    if not set(names) <= {"health", "reflection"}:
        raise ValueError(f"{text!r} is none of health, reflection, both with a comma, or nothing")
    return names


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a whole number from 0")
    return int(text)


def _positive(text: str) -> int:
    if _count(text) == 0:
        raise ValueError("must be at least 1")
    return int(text)


def _percent(text: str) -> int:
    if _count(text) > 100:
        raise ValueError(f"{text!r} is not a whole number from 0 to 100")
    return int(text)


def _below(limit: float, what: str) -> Callable[[str], float]:
    """Numbers above 0."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 < value < limit:
            raise ValueError(f"{text!r} is not {what}")
        return value

    return parse


_share = _below(1, "a number between 0 and 1")
_seconds = _below(86_400, "a number of seconds between 0 and 86400")


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _indices(text: str) -> tuple[int, ...]:
    indices = tuple(_count(index.strip()) for index in text.split(","))
    if len(set(indices)) < len(indices):
        raise ValueError(f"{text!r} names a GPU twice; for several worker pairs on each use pairs")
    return indices


def _ramp(text: str) -> tuple[int, ...]:
    sizes = tuple(_positive(size.strip()) for size in text.split(","))
    if list(sizes) != sorted(sizes):
        raise ValueError(f"{text!r} goes down; later chunks are as large as the ones before or larger")
    return sizes


_DEVICE = "auto|cpu|cuda:N"

SETTINGS = (
    Setting("model", "", _names, "DIR|PRESET", "checkpoint folder, or name of a preset; again for each further one"),
    Setting("load_format", "", _choice("safetensors", "dummy"), "FORMAT", "safetensors, or dummy: random weights"),
    Setting("seed", "", _count, "N", "of dummy weights"),
    Setting("dtype", "", _choice("auto", "float32", "bfloat16"), "TYPE", "auto (float32 on CPU), float32 or bfloat16"),
    Setting("device", "", _device, _DEVICE, "of all stages that have none of their own"),
    Setting("gpus", "", _indices, "N,N,...", "in place of --device: a worker pair per model on each of these"),
    Setting("pairs", "", _positive, "N", "worker pairs per model, and per GPU of --gpus"),
    Setting("cpu_threads", "", _count, "N", "per worker; 0 = all workers share the cores"),
    Setting("enforce_eager", "", _switch, "true|false", "CUDA without graphs, for finding faults"),
    Setting("hang_timeout_s", "", _seconds, "S", "a worker in one step for longer is replaced"),
    Setting("start_timeout_s", "", _seconds, "S", "for the workers to load the model"),
    Setting("talker_device", "talker", _device, _DEVICE, "of the talker"),
    Setting("talker_cpu_threads", "talker", _count, "N", "of the talker; 0 = as --cpu-threads says"),
    Setting("num_slots", "talker", _positive, "N", "streams stepped together"),
    Setting("max_queued_streams", "talker", _count, "N", "waiting for a slot"),
    Setting("max_context", "talker", _positive, "N", "prompt rows + frames per stream"),
    Setting("num_pages", "talker", _count, "N", "of the KV cache; 0 = all that fit and slots can need"),
    Setting("kv_memory_share", "talker", _share, "X", "of a GPU's free memory for the KV cache of all talkers on it"),
    Setting("page_size", "talker", _positive, "N", "positions per page"),
    Setting("max_prefill_rows", "talker", _positive, "N", "prompt rows per step"),
    Setting("credit_frames", "talker", _positive, "N", "a stream may be ahead of what its client has taken"),
    Setting("runaway_frames_per_token", "talker", _count, "N", "beside 96, end a stream that does not; 0 = never"),
    Setting("runaway_repeated_frames", "talker", _count, "N", "in a row end a stream too long for its text; 0 = never"),
    Setting("code2wav_device", "code2wav", _device, _DEVICE, "of the codec"),
    Setting(
        "code2wav_dtype", "code2wav", _choice("float32", "tf32", "float16"), "TYPE", "of the codec; tf32 is for CUDA"
    ),
    Setting("code2wav_cpu_threads", "code2wav", _count, "N", "of the codec; 0 = as --cpu-threads says"),
    Setting(
        "code2wav_sm_percent",
        "code2wav",
        _percent,
        "N",
        "of the GPU for the codec under MPS; 0 = no limit",
    ),
    Setting(
        "code2wav_priority", "code2wav", _choice("normal", "below-normal"), "NAME", "of the codec's kernels under MPS"
    ),
    Setting("chunk_ramp", "code2wav", _ramp, "N,N,...", "frames per chunk, first to last; the last one repeats"),
    Setting("runaway_silent_frames", "code2wav", _count, "N", "in a row end a stream; 0 = never"),
    Setting("max_decode_batch", "code2wav", _positive, "N", "streams per call"),
    Setting("kept_references", "code2wav", _count, "N", "of cloned voices, which are decoded once while they are kept"),
    Setting("encoder_device", "encoder", _device, _DEVICE, "of recordings to clone"),
    Setting("encoder_threads", "encoder", _count, "N", "0 = a quarter of the cores"),
    Setting("max_queued_recordings", "encoder", _positive, "N", "waiting, the one being encoded included"),
    Setting("encode_timeout_s", "encoder", _seconds, "S", "for one recording"),
    Setting("encoder_idle_s", "encoder", _seconds, "S", "without a recording, until the process is stopped"),
    Setting(
        "mps",
        "service",
        _choice("auto", "true", "false"),
        "auto|true|false",
        "start a CUDA MPS daemon for the workers; auto: where a talker and its codec share a GPU, if it can be",
    ),
    Setting("listen", "service", _address, "HOST:PORT", "port 0 picks a free one"),
    Setting("metrics_listen", "service", _address, "HOST:PORT", "GET /metrics for Prometheus"),
    Setting("admin_listen", "service", _address, "HOST:PORT", "channelz and reflection, for operators only"),
    Setting("traces", "service", _url, "URL", "of an OTLP collector: http://HOST:4318/v1/traces"),
    Setting("max_sessions", "service", _positive, "N", "RPCs at the same time"),
    Setting("max_text_chars", "service", _positive, "N", "per utterance"),
    Setting("drain_grace_s", "service", _seconds, "S", "for running calls after SIGTERM"),
    Setting("request_timeout_s", "service", _seconds, "S", "for the first message of a call"),
    Setting("api_keys", "service", Path, "FILE", "callers and the hashes of their keys; without it anyone may call"),
    Setting("open_services", "service", _services, "health,reflection", "what needs no key"),
    Setting("voices_dir", "service", Path, "DIR", "where voices are kept that callers make; without it none are"),
    Setting("max_voices", "service", _positive, "N", "kept, of all callers together"),
    Setting("max_voice_bytes", "service", _positive, "N", "of their files"),
    Setting("voice_cache_bytes", "service", _count, "N", "of voices in memory"),
    Setting("tls_certificate", "service", Path, "FILE", "PEM, with its chain"),
    Setting("tls_key", "service", Path, "FILE", "PEM"),
    Setting("tls_client_ca", "service", Path, "FILE", "PEM; clients must have a certificate of it"),
)
