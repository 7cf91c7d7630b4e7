"""The server's settings in use. `sonorant.settings.sources` reads them; here worker pairs are made of them.

A setting of one model wins over the one of all models, whatever sources they come from.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sonorant.engine import AUTO, BUILTIN_VOICE_DIR, CheckpointError, EngineConfig, resolve_model
from sonorant.service import __version__
from sonorant.service.settings import (
    BUILT_IN,
    ENVIRONMENT_PREFIX,
    HELP,
    SETTINGS,
    STAGES,
    STAGES_OF_MODELS,
    ServiceConfig,
)
from sonorant.settings import defaults_of, with_settings
from sonorant.settings.sources import ConfigError, Sources

# What to do in place of settings that there were before the first version.
GONE = {
    **dict.fromkeys(("talker_cpu_threads", "code2wav_cpu_threads"), "set --cpu-threads, which holds for each worker"),
    **dict.fromkeys(
        (
            "page_size",
            "max_prefill_rows",
            "credit_frames",
            "runaway_frames_per_token",
            "runaway_repeated_frames",
            "runaway_silent_frames",
            "chunk_ramp",
            "max_decode_batch",
            "kept_references",
            "start_timeout_s",
            "encode_timeout_s",
            "request_timeout_s",
            "voice_cache_bytes",
        ),
        "the server knows the right value; leave it out",
    ),
    "encoder_threads": "the encoder takes a quarter of the cores; leave it out",
    "kv_memory_share": "set --gpu-memory-gib to what the server may take of a GPU's memory",
    "code2wav_sm_percent": "Code2Wav may use the whole GPU; leave it out",
    "code2wav_priority": "talker and Code2Wav have the same priority; leave it out, or set --mps false",
    "seed": "dummy weights are always the same; leave it out",
    "riva": "clients of NVIDIA Riva are always served; leave it out",
    "encoder_device": "recordings are encoded where the talker runs; set --talker-device, or leave it out",
    "encoder_idle_s": "the encoder of recordings runs as long as the server; leave it out",
    "max_queued_recordings": "recordings wait in turns of their callers; set --max-recording-wait-s",
}
_OTHERS = ("CLIENT_", "GATEWAY_", "PRETEND_", "CPU")  # variables of other programs, and of tests
SOURCES = Sources(ENVIRONMENT_PREFIX, SETTINGS, [ENVIRONMENT_PREFIX + name for name in _OTHERS], GONE, HELP)
_PLACES = {"device", "gpus"}
_LEFT_OPEN = defaults_of(EngineConfig)


def parse_args(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> ServiceConfig:
    """Read all sources and return the settings. Exits with status 2 and a message if any of them is wrong."""
    return SOURCES.parse(_parser(), argv, environment, _config, _from_document)


def _config(values: dict[str, Any]) -> ServiceConfig:
    given = {name for name in values if name.startswith("tls_")}
    if values.get("voices_dir") and values.get("voices_url"):
        raise ConfigError("--voices-url replaces --voices-dir; leave one of them out")
    if values.get("phrases") and not values.get("phrase_cache_bytes"):
        raise ConfigError(
            "--phrases needs a phrase cache, and --phrase-cache-bytes is 0; set it to 64000000, for example"
        )
    if given and not {"tls_certificate", "tls_key"} <= given:
        raise ConfigError("TLS needs both --tls-certificate and --tls-key")
    return with_settings(ServiceConfig(tuple(_engines(values))), values)


def _engines(values: dict[str, Any]) -> Iterator[EngineConfig]:
    """Yield the config of each worker pair: models in the order given, and GPUs in the order given."""
    if "models" in values and "model" in values:
        raise ConfigError("the file lists models under [[models]]; leave --model out")
    for own in values.get("models") or [{"model": (name,)} for name in values.get("model") or (BUILT_IN,)]:
        # A model with a device or GPUs of its own ignores those of all models.
        of_all = values if _PLACES.isdisjoint(own) else {n: value for n, value in values.items() if n not in _PLACES}
        of_model = {**of_all, **own}
        if "gpus" in of_model and "device" in of_model:
            raise ConfigError("--gpus replaces --device; leave one of them out")
        (name,) = of_model["model"]
        model = EngineConfig(_model(name))
        devices = [f"cuda:{index}" for index in of_model["gpus"]] if "gpus" in of_model else [of_model.get("device")]
        num_pairs, num_standbys = len(devices) * of_model.get("pairs", 1), of_model.get("standby", AUTO)
        for n in range(num_pairs + max(0, num_standbys)):
            device = devices[n % len(devices)]
            of_pair = {"talker_device": device, "code2wav_device": device, **of_model} if device else of_model
            engine = with_settings(model, {**_LEFT_OPEN, **of_pair})
            wants_standby = num_standbys == AUTO and num_pairs == 1
            yield replace(engine, is_standby=n >= num_pairs, wants_standby=wants_standby)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sonorant-server",
        usage="%(prog)s [SETTING...] | doctor [SETTING...] | new-key NAME | voices migrate SOURCE TARGET | "
        "voices rebuild FOLDER [--owner NAME]",
        description="Streaming text-to-speech over gRPC.",
        epilog=f"Each setting can also be an environment variable ({ENVIRONMENT_PREFIX}NUM_SLOTS for --num-slots), or "
        "a key of the TOML file: at its top (talker_device), or in its table without the table's name (device in "
        "[talker]). See docs/operations.md.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def _from_document(document: dict[str, Any], path: str) -> dict[str, Any]:
    models = document.pop("models", [])
    values = SOURCES.from_tables(document, path, STAGES)
    if not isinstance(models, list) or not all(isinstance(table, dict) for table in models):
        raise ConfigError(f"{path}: models must be tables, each under [[models]]")
    if models:
        values["models"] = [
            SOURCES.from_tables(table, f"{path}, [[models]] {number}", STAGES_OF_MODELS, "[models.{}]")
            for number, table in enumerate(models, 1)
        ]
        for number, own in enumerate(values["models"], 1):
            if len(own.get("model", ())) != 1:
                raise ConfigError(f"{path}, [[models]] {number}: model must name one checkpoint")
    return values


def _model(name: str) -> Path:
    if name == BUILT_IN:
        return BUILTIN_VOICE_DIR
    try:
        return resolve_model(name)
    except CheckpointError as error:
        raise ConfigError(f"model: {error}") from error
