"""One server with several worker pairs: voices of every kind, a pair that dies, and a server whose owner is killed."""

import os
import select
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from sonorant.engine import BUILTIN_VOICE_DIR
from sonorant.tts.v1.text_to_speech_service_pb2 import GetCapabilitiesRequest, SynthesizeRequest
from sonorant.tts.v1.voice_service_pb2 import ListVoicesRequest
from sonorant.tts.v1.voice_service_pb2_grpc import VoiceServiceStub
from tests.e2e.server_process import ServerProcess
from tests.engine.mps_stand_in import install_mps
from tests.service.harness import Stub, eventually, failure, say, speak
from tests.service.harness import config as speak_config
from tests.tiny_checkpoint import QUICK, write_tiny_checkpoint

pytestmark = pytest.mark.slow

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
ALONE = ("sonorant-server", "sonorant-forker", "sonorant-talker", "sonorant-code2w")  # what a server starts
SAMPLING = {"max_frames": 8, "ignore_eos": True, "seed": 7}
PRESET: dict[str, Any] = {"sampling": SAMPLING}
EMBEDDING: dict[str, Any] = {"voice": {"speaker_embedding": {"values": [0.5] * 32}}, "sampling": SAMPLING}
DESIGN: dict[str, Any] = {"voice": {"design": "A calm voice."}, "sampling": SAMPLING}
FILE = """
[[models]]
model = "built-in"

[[models]]
model = "{base}"

[models.talker]
num_slots = 4

[[models]]
model = "{design}"
pairs = 2
talker.num_slots = 2
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("pool")
    base = write_tiny_checkpoint(folder / "base", "base", **QUICK)
    design = write_tiny_checkpoint(folder / "design", "voice_design", **QUICK)
    (folder / "sonorant.toml").write_text(FILE.format(base=base, design=design))
    with ServerProcess(folder / "log", "--config", str(folder / "sonorant.toml"), "--device", "cpu") as process:
        yield process


def pairs(server: ServerProcess, name: str) -> dict[tuple[str, str], float]:
    """A metric by the number of the pair and its model."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=60) as response:
        families = text_string_to_metric_families(response.read().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {(sample.labels["pair"], sample.labels["model"]): sample.value for sample in samples}


@pytest.mark.slow
@pytest.mark.rare
async def test_every_kind_of_voice_by_one_server_and_a_pair_that_dies_takes_no_other_along(pool: ServerProcess) -> None:
    async with grpc.aio.insecure_channel(pool.address) as channel:
        stub: Any = Stub(channel)
        health = health_pb2_grpc.HealthStub(channel)
        everything = {("0", BUILTIN_VOICE_DIR.name): 1, ("1", "base"): 1, ("2", "design"): 1, ("3", "design"): 1}
        assert pairs(pool, "tts_pair_ready") == everything
        capabilities = await stub.GetCapabilities(GetCapabilitiesRequest())
        assert capabilities.model == f"{BUILTIN_VOICE_DIR.name}, base, design"
        assert capabilities.supports_design
        assert capabilities.max_streams == 64 + (4 + 4) + 2 * (2 + 2)  # as many may wait as there are slots
        voices = (await VoiceServiceStub(channel).ListVoices(ListVoicesRequest())).voices
        assert {voice.description for voice in voices} == {f"A speaker of {BUILTIN_VOICE_DIR.name}."}

        for config in (PRESET, EMBEDDING, DESIGN):
            clip = await stub.Synthesize(SynthesizeRequest(text="the quick brown fox", config=config))
            assert clip.stats.codec_frames == 8
        spoken = await speak(stub, [speak_config(**DESIGN), say("the quick brown fox")])
        assert spoken.responses[0].session.model == "design"
        refused = {"voice": {"speaker_embedding": {"values": [0.5] * 31}}}
        code, _, _ = await failure(stub.Synthesize(SynthesizeRequest(text="fox", config=refused)))
        assert code == grpc.StatusCode.INVALID_ARGUMENT

        forker = next(pid for pid, name in pool.child_ids().items() if name == "sonorant-forker")
        os.kill(forker, signal.SIGSTOP)  # no pair comes back until it goes on
        os.kill(pool.worker("code2wav", "base"), signal.SIGKILL)
        await eventually(lambda: pairs(pool, "tts_pair_ready"), {**everything, ("1", "base"): 0})
        code, message, details = await failure(stub.Synthesize(SynthesizeRequest(text="fox", config=EMBEDDING)))
        assert (code, details["ErrorInfo"].reason) == (grpc.StatusCode.UNAVAILABLE, "ENGINE_UNAVAILABLE")
        assert "base" in message and details["RetryInfo"].retry_delay.seconds > 0
        for name, serving in (("", True), ("model/design", True), ("model/base", False)):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == (SERVING if serving else NOT_SERVING), name
        for config in (PRESET, DESIGN):
            assert (await stub.Synthesize(SynthesizeRequest(text="fox", config=config))).audio
        os.kill(forker, signal.SIGCONT)
        await eventually(lambda: pairs(pool, "tts_pair_ready"), everything, 60)
        assert (await stub.Synthesize(SynthesizeRequest(text="fox", config=EMBEDDING))).audio


@pytest.fixture
def mps_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a stand-in for the MPS daemon says its process id and directory."""
    return install_mps(tmp_path, monkeypatch)


def test_without_a_gpu_no_daemon_is_started_and_nothing_said_of_one(tmp_path: Path, mps_started: Path) -> None:
    with ServerProcess(tmp_path / "log", "--device", "cpu") as server:
        assert Counter(server.children()) == dict.fromkeys(ALONE, 1)
        assert not [line for line in server.log.splitlines() if "MPS" in line and " is ready: {" not in line]
    assert not mps_started.exists()


def test_workers_get_device_threads_and_priority_of_their_stage_and_go_with_the_server(
    tmp_path: Path, mps_started: Path
) -> None:
    model = write_tiny_checkpoint(tmp_path / "model", **QUICK)
    flags = "--device cpu --pairs 2 --cpu-threads 2 --mps true"
    with ServerProcess(tmp_path / "log", "--model", str(model), *flags.split()) as server:
        daemon, directory = mps_started.read_text().split()
        children, log = server.child_ids(), server.log
        workers = {"sonorant-talker": 2, "sonorant-code2w": 2}
        assert Counter(children.values()) == {**workers, "sonorant-server": 1, "sonorant-forker": 1, "sonorant-mps": 1}
        for line in (line for line in log.splitlines() if " is ready: {" in line):
            assert f"'CUDA_MPS_PIPE_DIRECTORY': '{directory}'" in line
        assert log.count("'device': 'cpu', 'threads': 2, 'num_pages'") == 2
        assert log.count("'device': 'cpu', 'threads': 2, 'num_slots'") == 2
        with ExitStack() as stack:
            fds = [os.pidfd_open(pid) for pid in (*children, int(daemon))]
            for fd in fds:
                stack.callback(os.close, fd)
            server.process.kill()
            assert all(_is_dead_soon(fd) for fd in fds)
    assert not Path(directory).exists()


def test_a_device_that_is_not_there_is_told_by_the_worker_that_wants_it(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="cannot start the engine: code2wav: 'cuda:7' does not exist here"):
        ServerProcess(tmp_path / "log", "--code2wav-device", "cuda:7")


async def test_a_voice_that_no_checkpoint_can_make_is_told_with_the_kind_that_could(stub: Any) -> None:
    code, message, details = await failure(stub.Synthesize(SynthesizeRequest(text="fox", config=DESIGN)))
    assert code == grpc.StatusCode.UNIMPLEMENTED
    assert details["ErrorInfo"].reason == "CHECKPOINT_LACKS_DESIGN"
    assert "VoiceDesign checkpoint" in message


@pytest.mark.rare
def test_a_server_goes_when_the_tests_that_own_it_are_killed(tmp_path: Path) -> None:
    owner = (
        "import sys; from pathlib import Path; from tests.e2e.server_process import ServerProcess; "
        "print(ServerProcess(Path(sys.argv[1])).process.pid, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", owner, str(tmp_path / "log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        server = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
        assert _is_dead_soon(server)
        os.close(server)


def _is_dead_soon(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(30_000))
