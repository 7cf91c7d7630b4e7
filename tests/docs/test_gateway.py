"""The snippets of docs/moving.md and the tables of docs/gateway.md are the truth; stock clients run the rest of them in
environments of their own (tests/gateway/stock)."""

import asyncio
import os
import re
import sys
from dataclasses import fields
from pathlib import Path

from sonorant.gateway.settings import SOURCES, GatewayConfig, parse_args
from tests.gateway.harness import gateway
from tests.service.fake_engine import FakeEngine

ROOT = Path(__file__).parents[2]
MOVING = (ROOT / "docs/moving.md").read_text(encoding="utf-8")
GATEWAY = (ROOT / "docs/gateway.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```([\w ]+)\n(.*?)^```$", MOVING, re.MULTILINE | re.DOTALL)


def test_every_snippet_is_run_somewhere() -> None:
    assert {language for language, _ in SNIPPETS} == {"python", "bash", "python pipecat", "python livekit"}


async def test_snippets_without_a_framework_run(tmp_path: Path) -> None:
    async with gateway(FakeEngine()) as door:
        address = door.url.removeprefix("http://")
        for language, text in SNIPPETS:
            if language not in ("python", "bash"):
                continue
            script = text.replace("HOST:8000", address)
            command = [sys.executable, "-c", script] if language == "python" else ["bash", "-euc", script]
            process = await asyncio.create_subprocess_exec(
                *command, cwd=tmp_path, env=dict(os.environ), stderr=asyncio.subprocess.PIPE
            )
            _, stderr = await process.communicate()
            assert process.returncode == 0, stderr.decode()
    for name in ("hello.wav", "hello-curl.wav"):
        assert (tmp_path / name).read_bytes()[:4] == b"RIFF", name


def test_links_lead_somewhere() -> None:
    for text in (MOVING, GATEWAY):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (ROOT / "docs" / target).exists(), target


def test_every_setting_is_told() -> None:
    assert len(SOURCES.settings) == len(fields(GatewayConfig))
    for setting in SOURCES.settings:
        assert f"`{setting.flag} " in GATEWAY, setting.flag


def test_the_file_of_the_guide_is_read_and_its_variable_exists(tmp_path: Path) -> None:
    (document,) = re.findall(r"^```toml\n(.*?)^```$", GATEWAY, re.MULTILINE | re.DOTALL)
    path = tmp_path / "gateway.toml"
    path.write_text(document)
    config = parse_args(["--config", str(path)], {})
    assert (config.listen, config.max_connections) == ("0.0.0.0:8000", 2000)
    assert config.servers == ("10.0.0.5:50051", "10.0.0.6:50051") and config.cors_origins == ("https://example.org",)
    (variable,) = re.findall(r"\(`(SONORANT_GATEWAY_\w+)`\)", GATEWAY)
    assert parse_args([], {variable: "7"}).max_connections == 7
