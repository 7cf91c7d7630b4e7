"""The encoder with its real process: whatever happens to it, each recording gets one answer and nothing is left."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder.on_demand import OnDemandEncoder
from sonorant.engine.encoder.recording import read_upload
from sonorant.engine.encoder.wire import Answer, Want
from sonorant.engine.errors import EncodingFailed, EngineOverloaded, EngineUnavailable, InvalidRecording
from sonorant.engine.ipc.child import Child
from sonorant.engine.model.reference import ReferenceEncoder
from tests.child_pids import child_pids
from tests.engine.encoder.recordings import audio_file, flac_that_claims, noise, spoken
from tests.engine.processes import run_encoder
from tests.open_files import open_files
from tests.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"), "base")
    return EngineConfig.of(model=folder, max_queued_recordings=3, encoder_threads=1)


@asynccontextmanager
async def running(config: EngineConfig) -> AsyncIterator[OnDemandEncoder]:
    encoder = OnDemandEncoder(config, load_checkpoint(config.model))
    try:
        yield encoder
    finally:
        await encoder.close()
        assert encoder.pid is None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def encoder(config: EngineConfig) -> AsyncIterator[OnDemandEncoder]:
    async with running(config) as encoder:
        yield encoder


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def has_begun(encoder: OnDemandEncoder, job: "asyncio.Task[Answer]") -> None:
    """Wait until something was sent to the process, which was stopped before."""
    await asyncio.sleep(0.2)
    assert not job.done()


async def test_nothing_runs_before_the_first_recording(config: EngineConfig) -> None:
    async with running(config) as encoder:
        assert encoder.pid is None


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
async def test_answers_are_those_of_the_encoders(encoder: OnDemandEncoder, config: EngineConfig, kind: str) -> None:
    data = spoken(kind=kind)
    answer = await encoder.encode(data, Want.X_VECTOR_AND_CODES)
    direct = ReferenceEncoder(load_checkpoint(config.model), config)
    recording = read_upload(data, direct.sample_rate_hz)
    assert answer.recording == recording.info
    assert answer.x_vector is not None and answer.codes is not None
    assert (answer.x_vector.dtype, answer.codes.dtype) == (np.float32, np.int16)
    np.testing.assert_array_equal(answer.x_vector, direct.x_vector(recording.samples))
    np.testing.assert_array_equal(answer.codes, direct.codes(recording.samples))


async def test_only_what_was_asked_for_is_made(encoder: OnDemandEncoder) -> None:
    assert (await encoder.encode(spoken(), Want.X_VECTOR)).codes is None
    assert (await encoder.encode(spoken(), Want.NOTHING)).x_vector is None


async def test_the_longest_recording(encoder: OnDemandEncoder) -> None:
    answer = await encoder.encode(audio_file(noise(30)), Want.X_VECTOR_AND_CODES)
    assert answer.codes is not None and len(answer.codes) == 375


async def test_it_gives_way_to_those_that_speak(encoder: OnDemandEncoder) -> None:
    await encoder.encode(spoken(), Want.NOTHING)
    assert encoder.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, encoder.pid) > os.getpriority(os.PRIO_PROCESS, 0)


async def test_a_bad_recording_harms_nobody(encoder: OnDemandEncoder) -> None:
    await encoder.encode(spoken(), Want.NOTHING)
    pid = encoder.pid
    long = flac_that_claims(36_000 * 24000, spoken(kind="FLAC"))
    for data, reason in (
        (b"", "RECORDING_UNREADABLE"),
        (spoken()[:50], "RECORDING_TOO_SHORT"),
        (spoken(kind="FLAC")[:2000], "RECORDING_UNREADABLE"),
        (long, "RECORDING_TOO_LONG"),
        (audio_file(noise(2, level=0)), "RECORDING_SILENT"),
    ):
        with pytest.raises(InvalidRecording) as error:
            await encoder.encode(data, Want.X_VECTOR_AND_CODES)
        assert error.value.reason == reason
    assert encoder.pid == pid


async def test_many_recordings_leave_nothing_behind(encoder: OnDemandEncoder) -> None:
    rates_hz = np.linspace(8001, 191_999, 400).astype(int)
    for rate_hz in rates_hz[:50]:
        await encoder.encode(audio_file(noise(1.01, rate_hz), rate_hz), Want.NOTHING)
    before_kb = resident_kb(encoder)
    for rate_hz in rates_hz[50:]:
        await encoder.encode(audio_file(noise(1.01, rate_hz), rate_hz), Want.NOTHING)
    assert resident_kb(encoder) - before_kb < 20_000


def resident_kb(encoder: OnDemandEncoder) -> int:
    status = Path(f"/proc/{encoder.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


async def test_a_recording_that_kills_it_fails_alone(encoder: OnDemandEncoder) -> None:
    await encoder.encode(spoken(), Want.NOTHING)
    pid = encoder.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    first = asyncio.create_task(encoder.encode(spoken(), Want.X_VECTOR))
    second = asyncio.create_task(encoder.encode(spoken(), Want.X_VECTOR))
    await has_begun(encoder, first)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EncodingFailed, match=r"died of the recording \(exit code -9\)"):
        await first
    assert (await second).x_vector is not None
    assert encoder.pid != pid


async def test_a_death_without_a_recording_is_nobodys_fault(encoder: OnDemandEncoder) -> None:
    await encoder.encode(spoken(), Want.NOTHING)
    assert encoder.pid is not None
    os.kill(encoder.pid, signal.SIGKILL)
    await asyncio.sleep(0.1)
    assert (await encoder.encode(spoken(), Want.X_VECTOR)).x_vector is not None


async def test_the_queue_is_bounded_and_who_leaves_makes_room(encoder: OnDemandEncoder) -> None:
    await encoder.encode(spoken(), Want.NOTHING)
    assert encoder.pid is not None
    os.kill(encoder.pid, signal.SIGSTOP)
    jobs = [asyncio.create_task(encoder.encode(spoken(), Want.NOTHING)) for _ in range(3)]
    await has_begun(encoder, jobs[0])
    with pytest.raises(EngineOverloaded, match="3 recordings are being encoded or queued"):
        await encoder.encode(spoken(), Want.NOTHING)
    jobs[1].cancel()
    await asyncio.sleep(0)
    jobs.append(asyncio.create_task(encoder.encode(spoken(), Want.NOTHING)))
    os.kill(encoder.pid, signal.SIGCONT)
    results = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(result) for result in results] == [Answer, asyncio.CancelledError, Answer, Answer]


async def test_who_leaves_while_it_is_encoded_leaves_no_trace(encoder: OnDemandEncoder) -> None:
    await encoder.encode(spoken(), Want.NOTHING)
    pid = encoder.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # for good: nobody waits for what it would say
    job = asyncio.create_task(encoder.encode(spoken(2), Want.X_VECTOR_AND_CODES))
    await has_begun(encoder, job)
    job.cancel()
    await until(lambda: encoder.num_recordings == 0)
    assert not is_running(pid)
    answer = await encoder.encode(audio_file(noise(3)), Want.X_VECTOR_AND_CODES)
    assert answer.codes is not None and len(answer.codes) == 38  # of this one, not the other


@pytest.mark.slow
async def test_a_recording_it_hangs_on_is_given_up(config: EngineConfig) -> None:
    async with running(config.but(encode_timeout_s=3.0)) as encoder:
        await encoder.encode(spoken(), Want.NOTHING)
        pid = encoder.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EncodingFailed, match="took more than 3 s"):
            await encoder.encode(spoken(), Want.X_VECTOR)
        assert not is_running(pid)
        assert (await encoder.encode(spoken(), Want.X_VECTOR)).x_vector is not None


async def test_it_is_stopped_when_nobody_needs_it_and_comes_back(config: EngineConfig) -> None:
    async with running(config.but(encoder_idle_s=0.2)) as encoder:
        await encoder.encode(spoken(), Want.NOTHING)
        pid = encoder.pid
        assert pid is not None
        await until(lambda: encoder.pid is None and not is_running(pid))
        assert (await encoder.encode(spoken(), Want.NOTHING)).recording.duration_ms == 2000


async def test_closing_ends_what_is_encoded_and_what_waits(config: EngineConfig, fork_server: None) -> None:
    before = open_files()
    async with running(config) as encoder:
        await encoder.encode(spoken(), Want.NOTHING)
        pid = encoder.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        jobs = [asyncio.create_task(encoder.encode(spoken(), Want.NOTHING)) for _ in range(2)]
        await has_begun(encoder, jobs[0])
        await encoder.close()
        for result in await asyncio.gather(*jobs, return_exceptions=True):
            assert isinstance(result, EngineUnavailable)
        assert not is_running(pid)
        with pytest.raises(EngineUnavailable, match="closed"):
            await encoder.encode(spoken(), Want.NOTHING)
    await asyncio.sleep(0)  # for the transport to close its socket
    assert not open_files() - before


async def test_closing_while_it_starts(config: EngineConfig, fork_server: None) -> None:
    while True:
        others = child_pids()
        async with running(config) as encoder:
            job = asyncio.create_task(encoder.encode(spoken(), Want.NOTHING))
            await until(lambda others=others: child_pids() - others)
            was_done = job.done()  # before this test looked
            await encoder.close()
            if not was_done:
                with pytest.raises(EngineUnavailable):
                    await job
                return


async def test_no_encoder_outlives_a_killed_parent(config: EngineConfig) -> None:
    with closing(Child.spawn("parent", run_encoder, (config,), [])) as parent:
        pid = await asyncio.to_thread(parent.ready.recv)
        parent.kill()
        await until(lambda: not is_running(pid))


@pytest.mark.slow
async def test_weights_that_cannot_be_loaded(config: EngineConfig, tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path, "base")
    (folder / "speech_tokenizer/model.safetensors").write_bytes(b"no weights")
    async with running(replace(config, model=folder)) as encoder:
        for _ in range(2):
            with pytest.raises(EngineUnavailable, match=r"cannot be encoded: .*not a whole safetensors file"):
                await encoder.encode(spoken(), Want.NOTHING)
