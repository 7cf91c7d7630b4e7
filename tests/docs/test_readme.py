"""Every snippet of README and docs/calling.md does what it says, against a real server on the built-in checkpoint."""

import asyncio
import os
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from google.protobuf import json_format
from packaging.requirements import Requirement

from sonorant.service.config import parse_args
from sonorant.tts.v1 import speak_pb2, text_to_speech_service_pb2
from tests.e2e.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CALLING = (ROOT / "docs" / "calling.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```(\w+)\n(.*?)^```$", README + CALLING, re.MULTILINE | re.DOTALL)
RUN_ELSEWHERE = ("make", "docker", "python3")  # checked below; CI runs `make demo` and `make test` themselves


def bash_snippets(*programs: str) -> list[str]:
    return [text for language, text in SNIPPETS if language == "bash" and text.split()[0] in programs]


def test_every_snippet_is_covered_by_a_test_here() -> None:
    covered = bash_snippets("sonorant", "printf", "python", "grpcurl", *RUN_ELSEWHERE)
    covered += [text for language, text in SNIPPETS if language in ("python", "text")]
    assert sorted(text for _, text in SNIPPETS) == sorted(covered)


def test_the_commands_with_published_weights_fit_this_version(tmp_path: Path) -> None:
    (commands,) = bash_snippets("python3")
    name, folder = re.findall(r"hf download Qwen/(\S+) --local-dir (\S+)", commands)[0]
    assert (ROOT / "engine/sonorant/engine/presets" / name.lower()).is_dir()
    servers = re.findall(r"^sonorant-server(?: doctor)? (.*?) *(?:#.*|&)$", commands, re.MULTILINE)
    assert len(servers) == 2
    for arguments in servers:
        config = parse_args(shlex.split(arguments.replace(f"--model {folder}", f"--model {tmp_path}")), {})
        assert config.engine.model == tmp_path


@pytest.mark.slow
async def test_commands_and_programs_run(server: ServerProcess, tmp_path: Path) -> None:
    for language, text in SNIPPETS:
        if language == "python":
            command = [sys.executable, "-c", text.replace("127.0.0.1:50051", server.address)]
        elif text.split()[0] in ("sonorant", "printf", "python"):
            script = re.sub(r"\bsonorant (\w+)", rf"sonorant \1 --server {server.address}", text)
            command = ["bash", "-euo", "pipefail", "-c", script]
        elif text.split()[0] == "grpcurl" and shutil.which("grpcurl") and shutil.which("jq"):
            command = ["bash", "-euo", "pipefail", "-c", text.replace("127.0.0.1:50051", server.address)]
        else:
            continue
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, f"{text}\n{output.decode()}"
    for name, least in {
        "hello.wav": 5000,
        "words.wav": 5000,
        "phone.ulaw": 5000,
        "spoken/00002.wav": 5000,
        "speech.pcm": 5000,
        "offline.wav": 5000,
        "codes.npy": 200,
    }.items():
        assert (tmp_path / name).stat().st_size > least, f"{name} is empty or too short"


@pytest.mark.parametrize("snippet", bash_snippets("grpcurl"))
def test_grpcurl_messages_fit_the_contract(snippet: str) -> None:
    """Also where grpcurl is not installed: every method exists and takes the messages it is given."""
    methods = text_to_speech_service_pb2.DESCRIPTOR.services_by_name["TextToSpeechService"].methods_by_name
    assert "describe sonorant.tts.v1.TextToSpeechService" in snippet
    assert set(re.findall(r"sonorant\.tts\.v1\.TextToSpeechService/(\w+)", snippet)) <= set(methods)
    messages = re.findall(r"'(\{.*?\})'(?=[ \n])", snippet)
    assert len(messages) == 4
    json_format.Parse(messages[0], text_to_speech_service_pb2.SynthesizeRequest())
    assert [json_format.Parse(m, speak_pb2.SpeakRequest()).WhichOneof("payload") for m in messages[1:]] == [
        "config",
        "text",
        "text",
    ]


def test_named_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    pages = README + CALLING + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", pages, re.MULTILINE))
    assert {"demo", "serve", "test", "bench"} <= named <= targets


def test_named_image_targets_exist() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    stages = re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.MULTILINE)
    assert set(re.findall(r"--target (\w+)", README)) <= set(stages)
    assert stages[-1] == "cuda", "the last stage is what a bare `docker build` makes"


def test_named_versions_of_torch_are_taken() -> None:
    """pip would replace another one, and on 64-bit Arm bring the CUDA libraries."""
    requirements = map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    taken = next(each.specifier for each in requirements if each.name == "torch")
    places = [ROOT / name for name in ("Dockerfile", "Makefile", "CONTRIBUTING.md", "docs/operations.md")]
    named = {
        version for place in places for version in re.findall(r"torch==([\d.]+\d)", place.read_text(encoding="utf-8"))
    }
    assert len(named) > 1
    assert {version for version in named if version in taken} == named


def test_named_presets_exist() -> None:
    folders = (ROOT / "engine/sonorant/engine/presets").glob("qwen3-*")
    presets = {folder.name.removeprefix("qwen3-tts-12hz-") for folder in folders}
    assert {name for name in presets if name in README} == presets
