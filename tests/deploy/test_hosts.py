"""The units of systemd and the Compose file start what there is, with settings that it has and with time to finish."""

import re
import shlex
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from sonorant.gateway.settings import GatewayConfig
from sonorant.gateway.settings import parse_args as parse_gateway_args
from sonorant.service.config import parse_args
from sonorant.service.settings import ServiceConfig

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
INSTANCE = "0"


def unit(path: Path) -> RawConfigParser:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(path.read_text().replace("%i", INSTANCE))
    return parser


def settings(command: list[str], tmp_path: Path, environment: dict[str, str]) -> ServiceConfig | GatewayConfig:
    """As the program takes them, where the files that it names are there."""
    (tmp_path / "file.toml").write_text("")
    arguments = [str(tmp_path / "file.toml") if each.startswith("/etc/sonorant/") else each for each in command[1:]]
    arguments = [f"--model={tmp_path}" if each.startswith("--model=") else each for each in arguments]
    arguments = ["auto" if each.startswith("cuda:") else each for each in arguments]
    parse = {"sonorant-server": parse_args, "sonorant-gateway": parse_gateway_args}[Path(command[0]).name]
    return parse(arguments, environment)


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def drain_s(config: ServiceConfig | GatewayConfig) -> float:
    return getattr(config, "drain_delay_s", 0.0) + config.drain_grace_s


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_program_with_settings_that_it_has_and_lets_it_finish(path: Path, tmp_path: Path) -> None:
    service = unit(path)["Service"]
    config = settings(shlex.split(service["ExecStart"]), tmp_path, {})
    assert seconds(service["TimeoutStopSec"]) > drain_s(config)
    if isinstance(config, ServiceConfig):
        assert service["Type"] == "notify"
        name, _, folder = service["Environment"].partition("=")
        assert name == "TRITON_CACHE_DIR" and folder.startswith(f"/var/cache/{service['CacheDirectory']}/")


def test_the_units_of_one_host_have_ports_of_their_own() -> None:
    text = (DEPLOY / "sonorant@.service").read_text()
    ports = [re.findall(r"127\.0\.0\.1:(\d+)", text.replace("%i", str(gpu))) for gpu in range(4)]
    assert len({port for each in ports for port in each}) == 8


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong(path: Path, tmp_path: Path) -> None:
    name = path.name.replace("@", f"@{INSTANCE}")
    (tmp_path / name).write_text(
        re.sub(r"^ExecStart=\S+", f"ExecStart={shutil.which('true')}", path.read_text(), flags=re.M)
    )
    found = subprocess.run(["systemd-analyze", "verify", tmp_path / name], capture_output=True, text=True, check=False)
    assert not [line for line in found.stderr.splitlines() if name in line], found.stderr


@pytest.mark.parametrize("name", ["sonorant-0", "sonorant-1", "gateway"])
def test_compose_starts_a_program_with_settings_that_it_has_and_lets_it_finish(name: str, tmp_path: Path) -> None:
    service = SERVICES[name]
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.M)
    command = [*(service.get("entrypoint") or yaml.safe_load(entry)), *service["command"]]
    url = service.get("environment", {}).get("SONORANT_VOICES_URL")
    config = settings(command, tmp_path, {"SONORANT_VOICES_URL": url} if url else {})
    assert seconds(service["stop_grace_period"]) > drain_s(config)
    if isinstance(config, GatewayConfig):
        assert {server.partition(":")[0] for server in config.servers} <= SERVICES.keys()
        assert f"{config.listen.rpartition(':')[2]}" in service["ports"][0].split(":")
        compile(service["healthcheck"]["test"][-1], "healthcheck", "exec")
    else:
        assert {re.sub(r":ro$", "", volume).rpartition(":")[2] for volume in service["volumes"]} == {
            *("/models", "/home/sonorant/.triton")
        }
        assert service["read_only"] and service["tmpfs"] == ["/tmp"]


def test_compose_names_to_haproxy_what_its_file_asks_for() -> None:
    given, file = SERVICES["haproxy"]["environment"], (DEPLOY / "haproxy.cfg").read_text()
    assert set(given) <= set(re.findall(r"SONORANT_\w+", file))
    addresses = [value for name, value in given.items() if re.fullmatch(r"SONORANT_\d+", name)]
    assert {address.partition(":")[0] for address in addresses} == {
        name for name in SERVICES if name.startswith("sonorant-")
    }
    grace_s = seconds(SERVICES["haproxy"]["stop_grace_period"])
    assert grace_s >= max(seconds(SERVICES[address.partition(":")[0]]["stop_grace_period"]) for address in addresses)
