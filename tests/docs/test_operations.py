"""docs/operations.md: its files are taken, its commands run, its names exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from sonorant.engine import AUTO
from sonorant.service.access.api_keys import ApiKeys
from sonorant.service.config import parse_args
from sonorant.service.operations.metrics import Metrics
from sonorant.service.operations.restart_metrics import RestartCollector
from sonorant.service.rpc.health import LIVENESS
from sonorant.service.rpc.readiness import READINESS
from sonorant.service.settings import SETTINGS
from sonorant.service.utterance.phrases import Phrases
from tests.service.fake_engine import FakeEngine

TEXT = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def snippets(language: str) -> list[str]:
    return [text for each, text in SNIPPETS if each == language]


def test_the_settings_file_is_taken(tmp_path: Path) -> None:
    settings, _, _ = snippets("toml")
    (tmp_path / "sonorant.toml").write_text(settings)
    config = parse_args(["--config", str(tmp_path / "sonorant.toml")], {})
    assert (config.engine.talker.device, config.engine.code2wav.device) == ("cpu", "auto")
    assert (config.engine.talker.num_slots, config.max_sessions) == (16, 200)


def test_each_topology_is_taken(tmp_path: Path) -> None:
    rows = re.findall(r"^\| .* \| `(--.*)` \|$", TEXT, re.MULTILINE)
    found = []
    for flags in rows:
        engines = parse_args(flags.split(), {}).engines
        found.append([(engine.talker.device, engine.code2wav.device) for engine in engines])
    assert found == [
        [("cuda:0", "cuda:0")],
        [("cuda:0", "cuda:0")],
        [("cuda:0", "cuda:1")],
        [(f"cuda:{n}", f"cuda:{n}") for n in range(4)],
        [("cuda:0", "cuda:2"), ("cuda:1", "cuda:2")],
        [("cpu", "cpu")] * 2,
    ]
    (tmp_path / "sonorant.toml").write_text(snippets("toml")[1])
    engines = parse_args(["--config", str(tmp_path / "sonorant.toml")], {}).engines
    assert [(engine.model.name[-5:], engine.talker.device, engine.talker.num_slots) for engine in engines] == [
        ("voice", "auto", AUTO),
        ("-base", "cuda:0", 64),
        ("-base", "cuda:1", 64),
    ]


def test_the_keys_file_is_taken(tmp_path: Path) -> None:
    _, _, keys = snippets("toml")
    (tmp_path / "keys.toml").write_text(keys)
    caller = ApiKeys(tmp_path / "keys.toml").find("hello")
    assert caller is not None
    assert (caller.name, caller.max_sessions) == ("agent", 20)


def test_commands_run(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    doctor, *commands = snippets("bash")
    parse_args(doctor.removeprefix("sonorant-server doctor ").split())  # it runs in tests/service/test_doctor.py
    for command in commands:
        arguments = ["bash", "-euo", "pipefail", "-c", command]
        subprocess.run(arguments, cwd=tmp_path, env={**os.environ, "PATH": path}, check=True, timeout=60)
    assert len(ApiKeys(tmp_path / "keys.toml")) == 1


def test_probes_name_what_the_server_has() -> None:
    (probes,) = (yaml.safe_load(text) for text in snippets("yaml"))
    assert probes["livenessProbe"]["grpc"]["service"] == LIVENESS
    assert probes["readinessProbe"]["grpc"]["service"] == READINESS


def test_flags_and_metrics_exist() -> None:
    without_docker = re.sub(r"`docker [^`]*`", "", TEXT)  # its flags are its own
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", without_docker))
    assert sorted(named - {setting.flag for setting in SETTINGS}) == ["--config", "--help"]
    metrics = Metrics()
    metrics.follow(FakeEngine())
    metrics.follow_phrases(Phrases(0))
    metrics.registry.register(RestartCollector(lambda: [("", 0)], lambda: 0))  # the owner's
    exposed = {metric.name + ("_total" if metric.type == "counter" else "") for metric in metrics.registry.collect()}
    assert set(re.findall(r"`((?:tts|grpc)_\w+)(?:\{.*?\})?`", TEXT)) == exposed
