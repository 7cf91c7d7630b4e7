"""The whole system on the built-in checkpoint: a server process, its two workers, and clients on loopback.

The tests run in the order of this file, on one server; the last ones look for what the others may have left.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sonorant.service.utterance.segment_frames import RISING_FRAMES
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import (
    GetCapabilitiesRequest,
    SynthesizeRequest,
    SynthesizeStreamRequest,
)
from tests.e2e.server_process import ServerProcess, scrape
from tests.service.harness import (
    Stub,
    Transcript,
    assert_same_audio,
    cancel,
    config,
    end,
    eventually,
    failure,
    flush,
    read_all,
    read_until,
    say,
    speak,
)

COMPLETED = synthesis_pb2.FINISH_REASON_COMPLETED
FRAME_BYTES = 1920 * 2
SILENT_FIRST_FRAMES = 3  # of the built-in voice; silence in them is not sent
INVALID = grpc.StatusCode.INVALID_ARGUMENT
TEXT = "The quick brown fox jumps over the lazy dog."
TEXTS = ["One is here.", "Two for you.", "It is three.", "Four or more."]
SAMPLED: dict[str, Any] = {"seed": 11, "do_sample": True, "subtalker_do_sample": True, "max_frames": 30}


@pytest.fixture(scope="module")
def baseline(server: ServerProcess) -> tuple[Counter[str], list[str]]:
    """What the server has open while nobody speaks."""
    while scrape(server)["tts_sessions", ""]:
        time.sleep(0.01)
    return server.open_files(), server.children()


async def health(channel: grpc.aio.Channel) -> int:
    return (await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())).status


async def test_audio_starts_before_the_input_is_closed_and_words_may_come_one_by_one(
    stub: Any, baseline: object
) -> None:
    call, transcript = stub.Speak(), Transcript()
    patient = config()
    patient.text_policy.max_buffer_delay_ms = 60_000  # a busy machine may pause for the seconds that end a segment
    await call.write(speak_pb2.SpeakRequest(config=patient))
    words = [f"{word} " for word in TEXT.split()]
    for number, word in enumerate(words):
        await call.write(say(word))
        if number in (2, 5):
            await read_until(call, transcript, "audio")
            await asyncio.sleep(0.3)  # the model waits with us
    await call.done_writing()
    await read_all(call, transcript)
    assert transcript.done["u1"].reason == COMPLETED
    whole = await speak(stub, [config(), say("".join(words))])
    assert_same_audio(transcript.pcm["u1"], whole.pcm["u1"])
    assert len(whole.pcm["u1"]) > 48 * 1000


@pytest.mark.slow
async def test_workers_on_the_cpu_give_way_to_the_service(server: ServerProcess) -> None:
    own = os.getpriority(os.PRIO_PROCESS, server.serving_pid)
    assert [os.getpriority(os.PRIO_PROCESS, server.worker(name)) - own for name in ("talker", "code2wav")] == [5, 5]


async def test_all_three_ways_to_ask_give_the_same_audio(stub: Any) -> None:
    for non_streaming in (False, True):
        settings = {"sampling": SAMPLED, "non_streaming_mode": non_streaming}
        clip = await stub.Synthesize(SynthesizeRequest(text=TEXT, config=settings))
        request = SynthesizeStreamRequest(text=TEXT, config=settings)
        streamed = b"".join([r.audio.data async for r in stub.SynthesizeStream(request)])
        spoken = await speak(stub, [config(**settings), say(TEXT)])
        assert_same_audio(clip.audio, streamed)
        assert_same_audio(clip.audio, spoken.pcm["u1"])
        assert clip.stats.audio_ms == len(clip.audio) // 48
        silence = clip.stats.codec_frames * FRAME_BYTES - len(clip.audio)
        assert 0 <= silence <= SILENT_FIRST_FRAMES * FRAME_BYTES, "is not sent"


async def test_wav_is_a_wav_file(stub: Any, tmp_path: Path) -> None:
    import soundfile

    wav = {"audio": {"encoding": audio_pb2.AUDIO_ENCODING_WAV}}
    clip = await stub.Synthesize(SynthesizeRequest(text="Hello.", config=wav))
    path = tmp_path / "clip.wav"
    path.write_bytes(clip.audio)
    samples, rate_hz = soundfile.read(path, dtype="int16")
    assert rate_hz == 24_000
    assert samples.tobytes() == clip.audio[44:]
    assert abs(samples).max() > 1000, "it is heard"


async def test_flush_and_the_next_sentence(stub: Any) -> None:
    requests = [config(), say("One sentence. "), flush(5), say("Another one that takes two seconds.")]
    transcript = await speak(stub, requests)
    kinds = [kind for _, kind in transcript.kinds]
    assert kinds == ["session", "started", "audio", "flush_done", "audio", "done"]
    texts = "One sentence. ", "Another one that takes two seconds."
    apart = [(await speak(stub, [config(), say(text)])).pcm["u1"] for text in texts]
    both, between = transcript.pcm["u1"], len(transcript.pcm["u1"]) - sum(map(len, apart))
    assert 0 <= between <= SILENT_FIRST_FRAMES * FRAME_BYTES, "the pause of a speaker"
    at, rising = len(apart[0]) + between, RISING_FRAMES * FRAME_BYTES
    assert_same_audio(both[: len(apart[0])], apart[0])
    assert_same_audio(both[at + rising :], apart[1][rising:])  # it begins quieter: see test_pauses.py


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_thirty_two_streams_at_once_each_as_if_alone(stub: Any) -> None:
    settings = config(sampling=SAMPLED)
    alone = [(await speak(stub, [settings, say(text)])).pcm["u1"] for text in TEXTS]
    assert len(set(alone)) == len(TEXTS)
    together = await asyncio.gather(
        *(speak(stub, [settings, *(say(word) for word in re.split("(?= )", text))]) for text in TEXTS * 8)
    )
    for transcript, expected in zip(together, alone * 8, strict=True):
        assert_same_audio(transcript.pcm["u1"], expected)


async def test_a_reader_that_stops_bounds_production(server: ServerProcess, stub: Any) -> None:
    """Unpaced, so that only its window and the credit hold the engine back."""
    options = (("grpc.http2.lookahead_bytes", 65_536), ("grpc.http2.bdp_probe", 0))
    async with grpc.aio.insecure_channel(server.address, options=options) as channel:
        call = type(stub)(channel).Speak()
        sampling = {"max_frames": 150, "ignore_eos": True}
        await call.write(speak_pb2.SpeakRequest(config=config(sampling=sampling)))
        await call.write(say(TEXT))
        await call.write(end())
        await asyncio.sleep(2)
        assert (await speak(stub, [config(), say("Others go on.")])).done["u1"].reason == COMPLETED
        await call.done_writing()
        transcript = await read_all(call)
        assert transcript.done["u1"].stats.codec_frames == 150


async def test_cancel_of_an_utterance_and_of_a_call(stub: Any) -> None:
    call, transcript = stub.Speak(), Transcript()
    long = config(sampling={"max_frames": 1000, "ignore_eos": True})
    await call.write(speak_pb2.SpeakRequest(config=long))
    await call.write(say(TEXT, "long"))
    await read_until(call, transcript, "audio")
    await call.write(cancel("long"))
    await read_until(call, transcript, "done")
    assert transcript.done["long"].reason == synthesis_pb2.FINISH_REASON_CANCELLED
    await call.write(say("And on.", "next"))
    await read_until(call, transcript, "audio", "next")
    call.cancel()
    await asyncio.sleep(0)
    await no_sessions(stub)


async def no_sessions(stub: Any) -> None:
    async def active_sessions() -> int:
        return (await stub.GetCapabilities(GetCapabilitiesRequest())).active_sessions

    await eventually(active_sessions, 0)


CLIENT = """
import asyncio, sys, grpc
from tests.service.harness import *
async def main():
    async with grpc.aio.insecure_channel(sys.argv[1]) as channel:
        call, transcript = Stub(channel).Speak(), Transcript()
        settings = config(sampling={"max_frames": 1000, "ignore_eos": True})
        settings.max_lead_ms = 2000
        await call.write(speak_pb2.SpeakRequest(config=settings))
        await call.write(say("A long story.", "x"))
        await call.write(end("x"))
        await read_until(call, transcript, "audio")
        print("speaking", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_a_client_that_is_killed_leaves_nothing(server: ServerProcess, stub: Any) -> None:
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, server.address, stdout=subprocess.PIPE)
    assert client.stdout is not None
    assert await asyncio.wait_for(client.stdout.readline(), 60) == b"speaking\n"
    assert (await stub.GetCapabilities(GetCapabilitiesRequest())).active_sessions == 1
    client.kill()
    await client.wait()
    await no_sessions(stub)


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.timeout(120)
@pytest.mark.parametrize("killed", [["talker"], ["forker", "code2w"]])
async def test_processes_that_are_killed_take_no_utterance_along(
    server: ServerProcess, channel: grpc.aio.Channel, stub: Any, killed: list[str]
) -> None:
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    long = {"sampling": {"max_frames": 120, "ignore_eos": True}, "non_streaming_mode": False}
    request = SynthesizeStreamRequest(text=TEXT, config=long)
    whole = b"".join([response.audio.data async for response in stub.SynthesizeStream(request)])
    calls = [(stub.Speak(), Transcript()) for _ in range(3)]
    for call, transcript in calls:
        await call.write(speak_pb2.SpeakRequest(config={"synthesis": long}))
        await call.write(say(TEXT, "x"))
        await call.write(end("x"))
        await read_until(call, transcript, "audio")
    stream = stub.SynthesizeStream(request)
    responses = stream.__aiter__()
    heard = (await anext(responses)).audio.data
    talk, told = stub.Speak(), Transcript()
    await talk.write(speak_pb2.SpeakRequest(config=config()))
    await talk.write(say("Before.", "a"))
    await talk.write(end("a"))
    await read_until(talk, told, "done")

    pids = [pid for pid, name in server.child_ids().items() if name.removeprefix("sonorant-") in killed]
    assert len(pids) == len(killed)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)

    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    await talk.write(say("Meanwhile.", "b"))  # of a session that has spoken: it waits
    await talk.done_writing()
    await read_all(talk, told)
    assert told.done["b"].reason == COMPLETED
    heard += b"".join([response.audio.data async for response in responses])
    assert_same_audio(heard, whole)
    for call, transcript in calls:
        await read_until(call, transcript, "done")
        assert transcript.done["x"].reason == synthesis_pb2.FINISH_REASON_MAX_AUDIO
        assert_same_audio(transcript.pcm["x"], whole)
    async with asyncio.timeout(60):
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()
    for call, transcript in calls:
        await call.write(speak_pb2.SpeakRequest(config=config()))
        await call.write(say("Back again.", "y"))
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.done["y"].reason == COMPLETED


@pytest.mark.parametrize(
    ("settings", "code", "hint"),
    [
        ({"voice": {"voice_id": "wern"}}, grpc.StatusCode.NOT_FOUND, "did you mean 'wren'"),
        ({"language": "klingon"}, grpc.StatusCode.INVALID_ARGUMENT, "english"),
        ({"sampling": {"temperature": float("nan")}}, INVALID, "finite"),
        ({"sampling": {"do_sample": True, "temperature": 1e-38}}, INVALID, "0.001 to 100"),
        ({"sampling": {"subtalker_do_sample": True, "subtalker_temperature": 1e-38}}, INVALID, "0.001 to 100"),
        ({"sampling": {"repetition_penalty": 1e-38}}, INVALID, "0.001 to 100"),
        ({"sampling": {"max_frames": 100_000}}, grpc.StatusCode.INVALID_ARGUMENT, "4096 positions"),
        ({"audio": {"sample_rate_hz": 32_000}}, grpc.StatusCode.INVALID_ARGUMENT, "use "),
        ({"normalize_text": True}, grpc.StatusCode.UNIMPLEMENTED, "leave it unset"),
        ({"voice": {"design": "deep"}}, grpc.StatusCode.UNIMPLEMENTED, "VoiceDesign"),
        ({"voice": {"speaker_embedding": {"values": [1.0]}}}, grpc.StatusCode.INVALID_ARGUMENT, "numbers"),
    ],
)
async def test_bad_settings_are_refused_with_what_to_do(
    stub: Any, settings: dict[str, Any], code: grpc.StatusCode, hint: str
) -> None:
    call = stub.Speak()
    await call.write(speak_pb2.SpeakRequest(config={"synthesis": settings}))
    for failing in (stub.Synthesize(SynthesizeRequest(text="Hello.", config=settings)), call):
        got, message, details = await failure(failing)
        assert (got, hint in message) == (code, True), message
        assert "ErrorInfo" in details


async def test_a_megabyte_of_text(stub: Any) -> None:
    code, message, _ = await failure(stub.Synthesize(SynthesizeRequest(text="a" * 1_000_000)))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "limit of 100000" in message
    transcript = await speak(stub, [config(), say("a" * 1_000_000, "x"), say("Fine.", "y")])
    assert transcript.done["x"].reason == synthesis_pb2.FINISH_REASON_FAILED
    assert transcript.done["y"].reason == COMPLETED


@pytest.mark.timeout(120)
async def test_after_all_this_every_place_is_free_and_nothing_is_left_open(
    server: ServerProcess, baseline: tuple[Counter[str], list[str]]
) -> None:
    files, children = baseline
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = Stub(channel)
        await no_sessions(stub)
        short = {"sampling": {"max_frames": 2, "ignore_eos": True}}
        request = SynthesizeRequest(text="Hi.", config=short)
        clips = await asyncio.gather(*(stub.Synthesize(request) for _ in range(64)))
        assert {clip.stats.codec_frames for clip in clips} == {2}
    await eventually(lambda: server.open_files() - files, Counter())  # earlier clients may leave late
    assert sorted(server.children()) == sorted(children)


@pytest.mark.slow
@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGHUP, signal.SIGHUP]], ids=["systemd", "terminal"])
async def test_a_drain_finishes_a_running_stream_and_exits_with_zero(
    tmp_path: Path, signals: list[signal.Signals]
) -> None:
    with ServerProcess(tmp_path / "log") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            call, transcript = Stub(channel).Speak(), Transcript()
            await call.write(speak_pb2.SpeakRequest(config={}))
            await call.write(say(TEXT))
            await read_until(call, transcript, "audio")
            for number in signals:  # to all processes; workers go on until the server is done
                os.killpg(server.process.pid, number)
            await read_until(call, transcript, "go_away")
            assert await health(channel) == health_pb2.HealthCheckResponse.NOT_SERVING
            await call.write(say(" " + TEXT))
            await call.write(end())
            await read_all(call, transcript)
            assert transcript.done["u1"].reason == COMPLETED
            assert len(transcript.pcm["u1"]) > 48 * 3000
        workers = [server.worker("talker"), server.worker("code2wav")]
        assert await asyncio.to_thread(server.process.wait, 30) == 0
        for pid in workers:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_a_checkpoint_with_a_missing_tensor_is_refused_by_name(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    from tests.tiny_checkpoint import write_tiny_checkpoint

    folder = write_tiny_checkpoint(tmp_path / "broken")
    tensors = load_file(folder / "model.safetensors")
    del tensors["talker.codec_head.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(AssertionError, match=r"talker\.codec_head\.weight"):
        ServerProcess(tmp_path / "log", "--model", str(folder))
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.slow
async def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log") as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            call, transcript = Stub(channel).Speak(), Transcript()
            await call.write(speak_pb2.SpeakRequest(config={}))
            await call.write(say("Never ended"))
            await read_until(call, transcript, "audio")
            server.process.send_signal(signal.SIGTERM)
            await read_until(call, transcript, "go_away")
            server.process.send_signal(signal.SIGTERM)
            assert (await failure(call))[0] in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            assert await asyncio.to_thread(server.process.wait, 10) == 1
