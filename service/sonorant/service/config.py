"""The settings in use: from the command line, else the environment, else a TOML file, else the default.

A setting of one stage wins over the same setting of all stages, and one of a model over the one of all models, whatever
sources they come from: sources only compete for the same setting. An unknown setting in any source ends the process.
"""

import argparse
import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sonorant.engine import (
    AUTO,
    BUILTIN_VOICE_DIR,
    CheckpointError,
    EngineConfig,
    Setting,
    resolve_model,
    settings_of,
    with_settings,
)
from sonorant.service import __version__
from sonorant.service.settings import (
    BUILT_IN,
    ENVIRONMENT_PREFIX,
    SETTINGS,
    STAGES,
    STAGES_OF_MODELS,
    ServiceConfig,
    variable,
)

CONFIG_VARIABLE = f"{ENVIRONMENT_PREFIX}CONFIG"
_PLACES = {"device", "gpus"}
_LEFT_OPEN = {setting.name: setting.default for setting in settings_of(EngineConfig)}
# Kubernetes puts variables for each Service into every container. Those of a Service `sonorant` have our prefix.
_KUBERNETES = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
_CLIENT_PREFIX = f"{ENVIRONMENT_PREFIX}CLIENT_"


class ConfigError(Exception):
    """A setting is wrong; the message says which, where it came from, and what to do."""


def parse_args(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> ServiceConfig:
    """Read all sources and return the settings. Exits with status 2 and a message if any of them is wrong."""
    parser = _parser()
    known, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(f"{unknown[0]} is not a setting{_similar(unknown[0], [setting.flag for setting in SETTINGS])}")
    flags: dict[str, Any] = vars(known)
    environment = os.environ if environment is None else environment
    try:
        path = flags.pop("config", None) or environment.get(CONFIG_VARIABLE)
        values = _from_file(Path(path)) if path else {}
        values |= _from_environment(environment)
        values |= {name: _parsed(_setting(name), _text(text), _setting(name).flag) for name, text in flags.items()}
        return _config(values)
    except ConfigError as error:
        parser.error(str(error))


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
        num_pairs, num_standbys = len(devices) * of_model.get("pairs", 1), of_model.get("standby", 0)
        for n in range(num_pairs + num_standbys):
            device = devices[n % len(devices)]
            of_pair = {"talker_device": device, "code2wav_device": device, **of_model} if device else of_model
            engine = with_settings(model, {**_LEFT_OPEN, **of_pair})
            if engine.contradiction:
                raise ConfigError(engine.contradiction)
            yield replace(engine, is_standby=n >= num_pairs)


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
    parser.add_argument("--config", metavar="FILE", help=f"TOML file; also {CONFIG_VARIABLE}")
    for stage in ("", *STAGES):
        group = parser.add_argument_group(f"[{stage}]" if stage else "model and workers")
        for setting in SETTINGS:
            if setting.stage == stage:
                hint = f"; default: {_text(setting.default)}" if setting.default is not None else ""
                action = "append" if setting.name == "model" else "store"
                group.add_argument(setting.flag, action=action, metavar=setting.metavar, help=setting.help + hint)
    return parser


def _text(value: Any) -> str:
    """Write a value of the file as on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if value == AUTO:
        return "auto"
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    known = {variable(setting): setting for setting in SETTINGS}
    values = {}
    for name, text in environment.items():
        if setting := known.get(name):
            values[setting.name] = _parsed(setting, text, name)
        elif name.startswith(ENVIRONMENT_PREFIX) and not _is_foreign(name, text):
            raise ConfigError(f"environment variable {name} is not a setting{_similar(name, known)}")
    return values


def _is_foreign(name: str, text: str) -> bool:
    """Return whether a variable with our prefix belongs to something else: to Kubernetes or to our clients."""
    of_kubernetes = _KUBERNETES.fullmatch(name) or text.startswith(("tcp://", "udp://", "sctp://"))
    return name == CONFIG_VARIABLE or name.startswith(_CLIENT_PREFIX) or bool(of_kubernetes)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # neither UTF-8 nor TOML
        raise ConfigError(f"{path} is not TOML: {error}") from error
    models = document.pop("models", [])
    values = _from_tables(document, STAGES, str(path), "[{}]")
    if not isinstance(models, list) or not all(isinstance(table, dict) for table in models):
        raise ConfigError(f"{path}: models must be tables, each under [[models]]")
    if models:
        values["models"] = [
            _from_tables(table, STAGES_OF_MODELS, f"{path}, [[models]] {number}", "[models.{}]")
            for number, table in enumerate(models, 1)
        ]
        for number, own in enumerate(values["models"], 1):
            if len(own.get("model", ())) != 1:
                raise ConfigError(f"{path}, [[models]] {number}: model must name one checkpoint")
    return values


def _from_tables(document: dict[str, Any], stages: Sequence[str], path: str, header: str) -> dict[str, Any]:
    tables = {stage: document.pop(stage, {}) for stage in stages}
    values = {}
    for stage, table in {"": document, **tables}.items():
        where = f"{path}, {header.format(stage)}" if stage else path
        if not isinstance(table, dict):
            raise ConfigError(f"{where} must be a table, not a value")
        known = {setting.key: setting for setting in SETTINGS if setting.stage == stage}
        for key, value in table.items():
            if key not in known:
                raise ConfigError(
                    f"{where}: {key} is not a setting here{_elsewhere(key) or _similar(key, [*known, *tables])}"
                )
            if isinstance(value, dict):
                raise ConfigError(f"{where}: {key} must be a value, not a table")
            values[known[key].name] = _parsed(known[key], _text(value), f"{where}: {key}")
    return values


def _similar(name: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean {found[0]}?" if found else ""


def _elsewhere(key: str) -> str:
    tables = [setting.stage for setting in SETTINGS if setting.key == key]
    names = [f"in [{stage}]" if stage else "at the top of the file" for stage in tables]
    return f"; it belongs {' or '.join(names)}" if names else ""


def _setting(name: str) -> Setting:
    return next(setting for setting in SETTINGS if setting.name == name)


def _parsed(setting: Setting, text: str, where: str) -> Any:
    try:
        return setting.parse(text)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def _model(name: str) -> Path:
    if name == BUILT_IN:
        return BUILTIN_VOICE_DIR
    try:
        return resolve_model(name)
    except CheckpointError as error:
        raise ConfigError(f"model: {error}") from error
