"""deploy/: every file parses, and names what the server has."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sonorant.engine.tools.kernels import CARDS
from sonorant.gateway.settings import parse_args as parse_gateway_args
from sonorant.hosting.children import STOP_TIMEOUT_S
from sonorant.service.config import parse_args
from sonorant.service.rpc.health import LIVENESS
from sonorant.service.rpc.readiness import READINESS
from sonorant.service.settings import ServiceConfig

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKERFILE = (DEPLOY.parent / "Dockerfile").read_text()
# What is before the image's arguments.
ENTRYPOINT = json.loads(re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)[0])[1:]


def taken(arguments: list[str], tmp_path: Path) -> ServiceConfig:
    """As the server takes them, on a machine where the checkpoint is there."""
    return parse_args([*ENTRYPOINT, *(re.sub(r"/models/[^ ]*", str(tmp_path), each) for each in arguments)], {})


def port(address: str | None) -> int:
    assert address is not None
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize("name", ["sonorant.service", "sonorant@.service"])
def test_systemd_units(name: str, tmp_path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / name)
    command, *arguments = shlex.split(unit["Service"]["ExecStart"].replace("%i", "1"))
    assert Path(command).name == "sonorant-server"
    (tmp_path / "sonorant.toml").write_text("[service]\ndrain_grace_s = 30\n")
    assert arguments[0] == "--config"
    config = parse_args(["--config", str(tmp_path / "sonorant.toml"), *arguments[2:]], {})
    assert int(unit["Service"]["TimeoutStopSec"]) > config.drain_delay_s + config.drain_grace_s
    assert unit["Service"]["Type"] == "notify", "else a restart is over before the server serves"
    assert unit["Service"]["KillMode"] == "mixed", "else the workers are told to stop before they have finished"
    if "@" in name:
        haproxy = (DEPLOY / "haproxy.cfg").read_text()
        assert f'server gpu1 "${{SONORANT_1-{config.listen}}}" port' in haproxy
        assert f'"${{SONORANT_1_METRICS-{port(config.metrics_listen)}}}"' in haproxy
        assert config.engine.talker.device == config.engine.code2wav.device == "cuda:1"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd's own check of units")
def test_systemd_finds_nothing_wrong_in_the_units(tmp_path: Path) -> None:
    units = sorted(path.name for path in DEPLOY.glob("*.service"))
    for name in units:  # with commands that are here
        text = (DEPLOY / name).read_text()
        assert "ExecStart=/opt/sonorant/bin/" in text
        (tmp_path / name).write_text(text.replace("/opt/sonorant/bin/", f"{sys.prefix}/bin/"))
    command = ["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in units)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")
    # It does find what is wrong.
    wrong = tmp_path / units[0]
    wrong.write_text(wrong.read_text().replace("KillMode=mixed", "KillMode=mixed\nTimeoutStopMs=1"))
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", wrong], capture_output=True, text=True, check=False
    )
    assert "TimeoutStopMs" in ended.stderr


def test_the_unit_of_the_gateway(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "sonorant-gateway.service")
    command, *arguments = shlex.split(unit["Service"]["ExecStart"])
    (tmp_path / "gateway.toml").write_text("processes = 2\n")
    config = parse_gateway_args([arguments[0], str(tmp_path / "gateway.toml"), *arguments[2:]], {})
    assert Path(command).name == "sonorant-gateway" and config.processes == 2
    assert int(unit["Service"]["TimeoutStopSec"]) > config.drain_grace_s + STOP_TIMEOUT_S


def test_the_image_has_kernels_for_every_card_that_is_compiled_for() -> None:
    (cards,) = re.findall(r'^ARG CARDS="(.*)"$', DOCKERFILE, re.MULTILINE)
    assert cards.split() == list(CARDS)
    # What comes after it would be lost.
    assert DOCKERFILE.index("sonorant.engine.tools.kernels") < DOCKERFILE.index("VOLUME /home/sonorant/.triton")


def test_kubernetes_manifest(tmp_path: Path) -> None:
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    config = taken(container["args"], tmp_path)
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"grpc": port(config.listen), "metrics": port(config.metrics_listen)}
    assert str(ports["metrics"]) == pod["metadata"]["annotations"]["prometheus.io/port"]
    for probe, name in (("startupProbe", READINESS), ("livenessProbe", LIVENESS), ("readinessProbe", READINESS)):
        assert container[probe]["grpc"] == {"port": ports["grpc"], "service": name}
    waits_s = container["lifecycle"]["preStop"]["sleep"]["seconds"] + config.drain_grace_s
    assert pod["spec"]["terminationGracePeriodSeconds"] > waits_s
    labels = deployment["spec"]["selector"]["matchLabels"]
    assert labels == pod["metadata"]["labels"] == service["spec"]["selector"]
    assert service["spec"]["ports"][0]["targetPort"] in ports
    # The variables that a Service makes for its pods must not look like settings of the server.
    prefix = service["metadata"]["name"].upper().replace("-", "_")
    parse_args([], {f"{prefix}_SERVICE_HOST": "10.0.0.1", f"{prefix}_PORT": "tcp://10.0.0.1:50051"})


def test_compose_and_prometheus(tmp_path: Path) -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    haproxy = services["haproxy"]["environment"]
    targets = []
    for number in range(2):
        sonorant = services[f"sonorant-{number}"]
        (password,) = (text for name, text in sonorant["environment"].items() if name == "SONORANT_VOICES_URL")
        assert password.startswith("postgresql://sonorant:")
        config = taken(sonorant["command"], tmp_path)
        assert haproxy[f"SONORANT_{number}"] == f"sonorant-{number}:{port(config.listen)}"
        assert haproxy[f"SONORANT_{number}_METRICS"] == str(port(config.metrics_listen))
        assert int(sonorant["stop_grace_period"].removesuffix("s")) > config.drain_delay_s + config.drain_grace_s
        # Compose stops what depends on others first: calls would end with it.
        assert services["haproxy"]["stop_grace_period"] == sonorant["stop_grace_period"]
        targets.append(f"sonorant-{number}:{port(config.metrics_listen)}")
    door = services["gateway"]
    arguments = [*door["entrypoint"][1:], *(re.sub(r"\$\{\w+:-(.*?)\}", r"\1", each) for each in door["command"])]
    gateway = parse_gateway_args(arguments, {})
    assert door["entrypoint"][0] == "sonorant-gateway" and door["ports"] == [f"8000:{port(gateway.listen)}"]
    assert gateway.servers == tuple(f"sonorant-{number}:50051" for number in range(2))
    assert int(door["stop_grace_period"].removesuffix("s")) > gateway.drain_grace_s
    prometheus = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
    for file in prometheus["rule_files"]:
        assert f"./{file}:/etc/prometheus/{file}:ro" in services["prometheus"]["volumes"]
    scrapes = prometheus["scrape_configs"]
    assert scrapes[2]["static_configs"] == [{"targets": [f"gateway:{port(gateway.listen)}"]}]
    assert scrapes[0]["static_configs"] == [{"targets": targets}]
    assert scrapes[1]["static_configs"] == [{"targets": [f"haproxy{haproxy['SONORANT_STATS_BIND']}"]}]
    for each in compose["services"].values():
        for source in (volume.split(":")[0] for volume in each.get("volumes", ())):
            assert source.startswith("${") or source in compose["volumes"] or (DEPLOY / source).is_file()


@pytest.mark.parametrize("name", sorted(path.name for path in DEPLOY.glob("*.*")))
def test_operations_tells_of_each_file(name: str) -> None:
    assert f"deploy/{name}" in (DEPLOY.parent / "docs" / "operations.md").read_text()
