"""Recordings with their real processes: whatever happens to these, each gets one answer and nothing is left."""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from sonorant.engine.checkpoint.config import load_checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.encoder import encodings
from sonorant.engine.encoder.encodings import Encodings
from sonorant.engine.encoder.kept_up import KeptUpEncoder
from sonorant.engine.encoder.limits import NICENESS
from sonorant.engine.encoder.recording import read_upload
from sonorant.engine.encoder.reference import ReferenceEncoder
from sonorant.engine.encoder.wire import EncoderAnswer, Upload, Want
from sonorant.engine.errors import (
    CheckpointError,
    EncodingFailed,
    EngineOverloaded,
    EngineUnavailable,
    InvalidRecording,
)
from sonorant.engine.ipc.child import Child
from tests.child_pids import child_pids
from tests.engine.encoder.recordings import audio_file, flac_that_claims, noise, spoken
from tests.engine.processes import run_encoder
from tests.open_files import open_files
from tests.tiny_checkpoint import write_tiny_checkpoint

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOTH = Want.X_VECTOR_AND_CODES


@dataclass
class Running:
    """An encoder, and the recordings that are encoded there."""

    encodings: Encodings
    encoder: KeptUpEncoder

    async def encode(
        self, audio: bytes, want: Want = BOTH, caller: int = 0, holder: int = 0, wait_s: float = 0.0
    ) -> EncoderAnswer:
        upload = Upload(audio, hashlib.sha256(audio).digest(), want, caller, holder, wait_s)
        return (await self.encodings.encode(self.encoder, upload))[0]

    def jobs(self, recordings: Sequence[bytes], caller: int = 0) -> "list[asyncio.Task[EncoderAnswer]]":
        return [asyncio.create_task(self.encode(each, caller=caller)) for each in recordings]

    async def idle(self) -> None:
        await until(lambda: not self.encodings.num_jobs)

    async def at_decoders(self, number: int) -> None:
        """Until so many recordings have been sent to processes that decode."""
        await until(lambda: sum(job.decoding is not None for job in self.encodings._jobs.values()) == number)
        await asyncio.sleep(0)  # the tasks are there, and send when it is their turn

    async def at_encoder(self) -> None:
        """Until a recording has been decoded and is with the encoder."""
        await until(lambda: any(not job.waits and job.decoding is None for job in self.encodings._jobs.values()))


@asynccontextmanager
async def running(config: EngineConfig) -> AsyncIterator[Running]:
    encoder = KeptUpEncoder(config, load_checkpoint(config.model))
    them = Encodings(
        config.encoder.max_recording_wait_s, config.encoder.encode_timeout_s, config.start_timeout_s, on_gpu=False
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(encoder.start())
            tasks.create_task(them.start())
        yield Running(them, encoder)
    finally:
        await them.close()
        await encoder.close()
        assert encoder.pid is None and not them.decoder_pids


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"), "base")
    # Nobody is refused because the machine is busy.
    return EngineConfig.of(model=folder, encoder_threads=1, max_recording_wait_s=100.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def it(config: EngineConfig) -> AsyncIterator[Running]:
    async with running(config) as running_now:
        yield running_now


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    """A dead one may still be waited for by us."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def different(number: int, seconds: float = 1.5) -> list[bytes]:
    """So many recordings, whose like was never seen."""
    return [audio_file(noise(seconds, seed=next(SEEDS))) for _ in range(number)]


SEEDS = iter(range(1, 1_000_000))


def stop(pids: Sequence[int | None], which: signal.Signals = signal.SIGSTOP) -> None:
    for pid in pids:
        assert pid is not None
        os.kill(pid, which)


async def test_it_runs_before_the_first_recording(it: Running) -> None:
    assert it.encoder.pid is not None and len(it.encodings.decoder_pids) >= 2


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
async def test_answers_are_those_of_the_encoders(it: Running, config: EngineConfig, kind: str) -> None:
    data = spoken(kind=kind)
    answer = await it.encode(data)
    direct = ReferenceEncoder(load_checkpoint(config.model), config)
    recording = read_upload(data, direct.sample_rate_hz)
    assert answer.recording == recording.info
    assert answer.x_vector is not None and answer.codes is not None
    assert (answer.x_vector.dtype, answer.codes.dtype) == (np.float32, np.int16)
    np.testing.assert_array_equal(answer.x_vector, direct.x_vector(recording.samples))
    np.testing.assert_array_equal(answer.codes, direct.codes(recording.samples))


async def test_only_what_was_asked_for_is_made(it: Running) -> None:
    assert (await it.encode(spoken(), Want.X_VECTOR)).codes is None
    assert (await it.encode(spoken(), Want.NOTHING)).x_vector is None


async def test_the_longest_recording(it: Running) -> None:
    answer = await it.encode(audio_file(noise(30)))
    assert answer.codes is not None and len(answer.codes) == 375


async def test_they_give_way_to_those_that_speak(it: Running) -> None:
    for pid in (it.encoder.pid, *it.encodings.decoder_pids):
        assert pid is not None
        assert os.getpriority(os.PRIO_PROCESS, pid) >= NICENESS


async def test_bad_recordings_harm_nobody_also_several_at_a_time(it: Running) -> None:
    pids = [it.encoder.pid, *it.encodings.decoder_pids]
    long = flac_that_claims(36_000 * 24000, spoken(kind="FLAC"))
    bad = {
        b"": "RECORDING_UNREADABLE",
        spoken()[:50]: "RECORDING_TOO_SHORT",
        spoken(kind="FLAC")[:2000]: "RECORDING_UNREADABLE",
        long: "RECORDING_TOO_LONG",
        audio_file(noise(2, level=0)): "RECORDING_SILENT",
    }
    good = it.jobs(different(4), caller=2)
    for job, reason in zip(it.jobs(list(bad)), bad.values(), strict=True):
        with pytest.raises(InvalidRecording) as error:
            await job
        assert error.value.reason == reason
    for answer in await asyncio.gather(*good):
        assert answer.codes is not None
    assert [it.encoder.pid, *it.encodings.decoder_pids] == pids


async def test_many_recordings_leave_nothing_behind(it: Running) -> None:
    rates_hz = np.linspace(8001, 191_999, 200).astype(int)
    for rate_hz in rates_hz[:50]:
        await it.encode(audio_file(noise(1.01, rate_hz), rate_hz), Want.NOTHING)
    before_kb = resident_kb(it)
    for rate_hz in rates_hz[50:]:
        await it.encode(audio_file(noise(1.01, rate_hz), rate_hz), Want.NOTHING)
    assert resident_kb(it) - before_kb < 20_000 * len(it.encodings.decoder_pids)
    assert it.encodings.num_jobs == 0


@pytest.mark.slow
async def test_however_many_recordings_come_their_memory_is_bounded(
    it: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all processes; what was made of them is known up to a bound, which is smaller here so that it is reached."""
    monkeypatch.setattr(it.encodings._known, "_max_bytes", 100_000)
    sound = noise(1.0)

    async def encode(numbers: range, caller: int) -> None:
        for number in numbers:
            sound_of_it = sound.copy()
            sound_of_it[:2] = number / 20_000, -number / 20_000
            answer = await it.encode(audio_file(sound_of_it, subtype="FLOAT"), Want.X_VECTOR, caller)
            assert answer.x_vector is not None

    async def by_four_callers(first: int, after: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            for caller in range(4):
                tasks.create_task(encode(range(first + caller, after, 4), caller))

    await by_four_callers(0, 200)
    before_kb = resident_kb(it, os.getpid(), it.encoder.pid)
    await by_four_callers(200, 600)  # 96 kB each, and five times what is known
    assert resident_kb(it, os.getpid(), it.encoder.pid) - before_kb < 20_000
    assert it.encodings.num_jobs == it.encodings._waiting_bytes == 0
    assert 99_000 < it.encodings._known.num_bytes <= 100_000


def resident_kb(it: Running, *more_pids: int | None) -> int:
    texts = (Path(f"/proc/{pid}/status").read_text() for pid in (*it.encodings.decoder_pids, *more_pids))
    return sum(int(text.partition("VmRSS:")[2].split()[0]) for text in texts)


async def test_a_recording_that_came_before_is_not_encoded_again(it: Running) -> None:
    (recording,) = different(1)
    first = await it.encode(recording)
    pids = [it.encoder.pid, *it.encodings.decoder_pids]
    stop(pids)
    try:
        assert await it.encode(recording, caller=5) is first
        mine = asyncio.create_task(it.encode(recording, holder=7))  # whoever has a key does not learn that it was here
        without_codes = asyncio.create_task(it.encode(recording, Want.X_VECTOR))
        await until(lambda: it.encodings.num_jobs == 2)
        assert not mine.done() and not without_codes.done()
    finally:
        stop(pids, signal.SIGCONT)
    again = await mine
    np.testing.assert_array_equal(again.codes, first.codes)
    assert again is not first and (await without_codes).codes is None
    assert await it.encode(recording, holder=7) is again


async def test_what_is_known_is_bounded(it: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(it.encodings._known, "_max_bytes", 8_000)
    recordings = different(20, seconds=1.0)
    answers = [await it.encode(each) for each in recordings]
    assert it.encodings._known.num_bytes <= 8_000 < sum(answer.num_bytes for answer in answers)
    assert await it.encode(recordings[-1]) is answers[-1]
    assert await it.encode(recordings[0]) is not answers[0]


async def test_ten_callers_of_one_recording_have_it_encoded_once(it: Running) -> None:
    stop(it.encodings.decoder_pids)
    (recording,) = different(1)
    jobs = [asyncio.create_task(it.encode(recording, caller=caller)) for caller in range(10)]
    await asyncio.sleep(0)
    assert it.encodings.num_jobs == 1
    jobs[0].cancel()  # who brought it first leaves
    await asyncio.sleep(0)
    stop(it.encodings.decoder_pids, signal.SIGCONT)
    first, *others = await asyncio.gather(*jobs, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError)
    assert all(answer is others[0] for answer in others)
    assert isinstance(others[0], EncoderAnswer)


async def test_callers_take_turns(it: Running) -> None:
    await it.idle()
    pids = it.encodings.decoder_pids
    stop(pids)
    done: list[int] = []
    many = it.jobs(different(12), caller=1)
    await asyncio.sleep(0)
    one = it.jobs(different(1), caller=2)
    for caller, jobs in ((1, many), (2, one)):
        for job in jobs:
            job.add_done_callback(lambda _, caller=caller: done.append(caller))
    await asyncio.sleep(0)
    stop(pids, signal.SIGCONT)
    await asyncio.gather(*many, *one)
    assert done.index(2) <= 2 * len(pids)  # those that were taken before, and as many turns of the other


async def test_who_would_wait_for_too_long_is_refused_and_told_when_to_come_back(
    it: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(it.encodings, "_max_wait_s", 10.0)
    await it.idle()
    pids, usual_s = it.encodings.decoder_pids, it.encodings._lane_s
    stop(pids)
    try:
        jobs = it.jobs(different(len(pids) - 1), caller=1)  # a caller leaves one to others
        await it.at_decoders(len(jobs))
        it.encodings._lane_s = 2.0 * (len(pids) - 1)  # as if the latest recordings had taken so long
        jobs += it.jobs(different(6), caller=1)
        await asyncio.sleep(0)
        with pytest.raises(EngineOverloaded, match=r"would wait 12\.0 s to be encoded; try again later") as error:
            await it.encode(different(1)[0], caller=1)
        assert error.value.retry_s == pytest.approx(2.0)
        other = asyncio.create_task(it.encode(different(1)[0], caller=2))  # has waited for nothing yet
        await asyncio.sleep(0)
        patient = asyncio.create_task(it.encode(different(1)[0], caller=1, wait_s=12.5))
        await asyncio.sleep(0)
        assert not other.done() and not patient.done()
    finally:
        it.encodings._lane_s = usual_s
        stop(pids, signal.SIGCONT)
    await asyncio.gather(*jobs, other, patient)


async def test_recordings_that_wait_are_bounded(it: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await it.idle()
    pids = it.encodings.decoder_pids
    monkeypatch.setattr(encodings, "WAITING_BYTES", 400_000)
    stop(pids)
    taken = it.jobs(different(len(pids)), caller=3)
    await it.at_decoders(len(pids) - 1)
    many = it.jobs(different(6), caller=1)  # 72 kB each
    await asyncio.sleep(0)
    one = it.jobs(different(1), caller=2)
    await asyncio.sleep(0)
    stop(pids, signal.SIGCONT)
    for job in (*taken, *one, *many[:4]):
        assert (await job).codes is not None
    for job in many[4:]:  # the newest of who has most
        with pytest.raises(EngineOverloaded, match="too many to be held"):
            await job


async def test_a_recording_that_kills_a_decoder_fails_alone(it: Running) -> None:
    await it.idle()
    pids = it.encodings.decoder_pids
    stop(pids)
    jobs = it.jobs(different(len(pids) + 2)) + it.jobs(different(1), caller=1)  # for all lanes
    await it.at_decoders(len(pids))
    os.kill(pids[0], signal.SIGKILL)
    stop(pids[1:], signal.SIGCONT)
    results = await asyncio.gather(*jobs, return_exceptions=True)
    failed = [result for result in results if not isinstance(result, EncoderAnswer)]
    assert len(failed) == 1 and isinstance(failed[0], EncodingFailed)
    assert "the decoder died of the recording (exit code -9)" in str(failed[0])


async def test_a_killed_encoder_loses_no_recording(it: Running) -> None:
    await it.idle()
    pid = it.encoder.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    jobs = it.jobs(different(5))
    await it.at_encoder()
    assert not any(job.done() for job in jobs)
    os.kill(pid, signal.SIGKILL)
    for answer in await asyncio.gather(*jobs):
        assert answer.codes is not None
    assert it.encoder.pid != pid


async def test_deaths_without_a_recording_are_nobodys_fault(it: Running) -> None:
    await it.idle()
    pids = [it.encoder.pid, *it.encodings.decoder_pids]
    stop(pids, signal.SIGKILL)
    await until(lambda: it.encoder.pid not in pids and not any(map(is_running, pids)))
    for answer in await asyncio.gather(*it.jobs(different(4))):
        assert answer.codes is not None


async def test_who_leaves_while_it_waits_or_is_decoded_leaves_no_trace(it: Running) -> None:
    await it.idle()
    pids = it.encodings.decoder_pids
    stop(pids)  # for good: nobody waits for what they would say
    jobs = it.jobs(different(len(pids) + 3))
    await it.at_decoders(len(pids) - 1)
    for job in jobs:
        job.cancel()
    await until(lambda: not it.encodings.num_jobs and not any(map(is_running, pids)))
    assert it.encodings._waiting_bytes == 0
    answer = await it.encode(audio_file(noise(3)))
    assert answer.codes is not None and len(answer.codes) == 38


@pytest.mark.slow
async def test_a_recording_that_a_process_hangs_on_is_given_up(config: EngineConfig) -> None:
    async with running(config.but(encode_timeout_s=3.0)) as it:
        for pids, name in ((it.encodings.decoder_pids, "decoder"), ([it.encoder.pid], "encoder")):
            stop(pids)
            with pytest.raises(EncodingFailed, match=f"the {name} took more than 3 s"):
                await it.encode(different(1)[0])
            stop([pid for pid in pids if is_running(pid)], signal.SIGCONT)  # those that had no recording
        assert (await it.encode(different(1)[0])).codes is not None


async def test_closing_ends_what_is_encoded_and_what_waits(config: EngineConfig, fork_server: None) -> None:
    before = open_files()
    async with running(config) as it:
        pids = [it.encoder.pid, *it.encodings.decoder_pids]
        stop([it.encoder.pid])
        jobs = it.jobs(different(4))
        await it.at_encoder()
        await it.encodings.close()
        for result in await asyncio.gather(*jobs, return_exceptions=True):
            assert isinstance(result, EngineUnavailable)
        with pytest.raises(EngineUnavailable, match="closed"):
            await it.encode(spoken())
    assert not any(is_running(pid) for pid in pids if pid is not None)
    await asyncio.sleep(0)  # for the transport to close its socket
    assert not open_files() - before


async def test_closing_while_it_starts(config: EngineConfig, fork_server: None) -> None:
    others = child_pids()
    start = asyncio.create_task(running(config).__aenter__())
    await until(lambda: child_pids() - others)
    started = child_pids() - others
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not any(map(is_running, started - child_pids()))


async def test_no_process_outlives_a_killed_parent(config: EngineConfig) -> None:
    with closing(Child.spawn("parent", run_encoder, (config,))) as parent:
        pids = await asyncio.to_thread(parent.ready.recv)
        parent.kill()
        await until(lambda: not any(map(is_running, pids)))


async def test_weights_that_cannot_be_loaded(config: EngineConfig, tmp_path: Path) -> None:
    folder = write_tiny_checkpoint(tmp_path, "base")
    (folder / "speech_tokenizer/model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ExceptionGroup) as errors:
        async with running(replace(config, model=folder)):
            pass
    assert errors.group_contains(CheckpointError, match="not a whole safetensors file")
