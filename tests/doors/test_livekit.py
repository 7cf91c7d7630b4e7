"""`sonorant.livekit` against a real server: what LiveKit's own tests ask of every TTS, and barge-in."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from livekit.agents import (
    APIConnectionError,
    APIConnectOptions,
    APIError,
    APIStatusError,
    APITimeoutError,
    metrics,
    tts,
)
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT, TimedString
from livekit.plugins import nvidia

from clients.examples.livekit_agent import ANSWERS, talk
from sonorant.livekit import TTS, Heard
from tests.cutting_proxy import CuttingProxy
from tests.doors.judge import HEARING_HZ, assert_agree, assert_idle, assert_says, beginning_of

TEXT = "The quick brown fox jumps over the lazy dog. It (really) was three o'clock, or four."
AT_ONCE = APIConnectOptions(max_retry=0, timeout=5)


@pytest.fixture
async def speech(server: str) -> AsyncIterator[TTS]:
    async with TTS(target=server, sample_rate=HEARING_HZ) as speech:
        speech.prewarm()
        yield speech


def collect_metrics(speech: TTS) -> list[metrics.TTSMetrics]:
    collected: list[metrics.TTSMetrics] = []
    speech.on("metrics_collected", collected.append)
    return collected


def push(stream: tts.SynthesizeStream, text: str) -> None:
    for token in re.findall(r"\s?\S+", text):
        stream.push_text(token)


def assert_conforms(events: list[tts.SynthesizedAudio]) -> None:
    assert len({(event.request_id, event.segment_id) for event in events}) == 1 and events[0].request_id
    assert [event.is_final for event in events] == [False] * (len(events) - 1) + [True]
    assert all(0 < event.frame.duration <= 0.25 for event in events)
    assert {(event.frame.sample_rate, event.frame.num_channels) for event in events} == {(HEARING_HZ, 1)}


def pcm(events: list[tts.SynthesizedAudio]) -> bytes:
    return b"".join(event.frame.data.tobytes() for event in events)


def words(events: list[tts.SynthesizedAudio]) -> list[TimedString]:
    return [word for event in events for word in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])]


async def test_a_stream_conforms_and_its_words_come_with_their_times(speech: TTS, server: str) -> None:
    collected = collect_metrics(speech)
    async with speech.stream(conn_options=AT_ONCE) as stream:
        push(stream, TEXT)
        stream.end_input()
        events = [event async for event in stream]
    assert_conforms(events)
    assert_says(pcm(events), TEXT)
    assert "".join(words(events)) == TEXT
    starts = [word.start_time for word in words(events)]
    assert starts == sorted(starts) and starts[-1] > 2
    (metric,) = collected
    assert metric.streamed and metric.characters_count == len(TEXT) and not metric.cancelled
    assert metric.request_id == events[0].request_id
    assert metric.audio_duration == pytest.approx(sum(event.frame.duration for event in events), abs=0.02)
    await assert_idle(server)


async def test_a_whole_text_conforms(speech: TTS) -> None:
    collected = collect_metrics(speech)
    async with speech.synthesize(TEXT, conn_options=AT_ONCE) as stream:
        events = [event async for event in stream]
    assert_conforms(events)
    assert_says(pcm(events), TEXT)
    (metric,) = collected
    assert not metric.streamed and metric.characters_count == len(TEXT)


async def test_it_speaks_before_the_text_ends(speech: TTS) -> None:
    async with speech.stream(conn_options=AT_ONCE) as stream:
        push(stream, "The quick brown fox jumps over")
        first = await anext(stream)
        assert first.frame.duration > 0
        push(stream, " the lazy dog.")
        stream.end_input()
        assert_conforms([first, *[event async for event in stream]])


async def test_a_connection_that_is_cut_in_mid_speech_is_not_heard(server: str) -> None:
    """The library resumes what was said, so that no frame and no word is missing or comes twice."""
    port = int(server.rpartition(":")[2])
    async with CuttingProxy(port) as proxy, TTS(target=f"127.0.0.1:{proxy.port}", sample_rate=HEARING_HZ) as speech:
        stream = speech.stream(conn_options=AT_ONCE)
        push(stream, TEXT)
        stream.end_input()
        events = [await anext(stream) for _ in range(4)]
        assert proxy.cut()
        events += [event async for event in stream]
        await stream.aclose()
    assert_conforms(events)
    assert "".join(words(events)) == TEXT
    assert_says(pcm(events), TEXT)


async def test_an_empty_stream_is_clean_and_text_without_speech_is_a_moment_of_silence(speech: TTS) -> None:
    async with speech.stream(conn_options=AT_ONCE) as stream:
        stream.end_input()
        assert not [event async for event in stream]
    async with speech.stream(conn_options=AT_ONCE) as stream:
        stream.push_text("...")
        stream.end_input()
        assert 0 < sum([event.frame.duration async for event in stream]) < 0.1


async def test_closing_a_stream_stops_the_server_and_tells_what_was_heard(speech: TTS, server: str) -> None:
    interrupted: list[Heard] = []
    speech.on("speech_interrupted", interrupted.append)
    async with speech.stream(conn_options=AT_ONCE) as stream:
        push(stream, TEXT * 5)
        async for event in stream:
            if "lazy" in "".join(event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])):
                break
        await asyncio.sleep(1.0)  # the listener plays what has come
    await assert_idle(server)
    (heard,) = interrupted
    assert heard.text + heard.unheard == TEXT * 5
    assert heard.text and heard.unheard and heard.played_ms >= 1000


async def test_refusals_are_livekit_s_own_exceptions(speech: TTS, server: str) -> None:
    speech.update_options(voice="nobody")
    with pytest.raises(APIStatusError, match="no voice 'nobody'") as refusal:
        await speech.synthesize("Hello.", conn_options=AT_ONCE).collect()
    assert (refusal.value.status_code, refusal.value.retryable) == (404, False)
    assert refusal.value.body["reason"] == "VOICE_NOT_FOUND"
    async with TTS(target="127.0.0.1:1") as away:
        with pytest.raises(APIConnectionError, match="no answer from a Sonorant server") as gone:
            await away.synthesize("Hello.", conn_options=AT_ONCE).collect()
    assert gone.value.retryable


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_server_that_says_nothing_is_a_timeout(streamed: bool) -> None:
    """An error for each attempt, and no metric for what was never said."""
    options = APIConnectOptions(max_retry=1, retry_interval=0.0, timeout=0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with TTS(target=f"127.0.0.1:{silent.getsockname()[1]}") as mute:
            collected, errors = collect_metrics(mute), list[tts.TTSError]()
            mute.on("error", errors.append)
            with pytest.raises(APITimeoutError, match=r"did not answer within the call's 0.3 s"):
                if streamed:
                    async with mute.stream(conn_options=options) as stream:
                        push(stream, TEXT)
                        stream.end_input()
                        assert not [event async for event in stream]
                else:
                    await mute.synthesize("Hello.", conn_options=options).collect()
    assert [error.recoverable for error in errors] == [True, False] and not collected


async def test_the_example_agent_hears_answers_and_is_interrupted(server: str, caller_wav: str, tmp_path: Path) -> None:
    recording = tmp_path / "agent.wav"
    messages, interruptions = await talk(caller_wav, str(recording), server)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert "weather" in messages[0]["content"]
    answer = messages[1]["content"].strip()
    assert ANSWERS[0].startswith(answer) and 3 < len(answer.split()) < 25
    heard = interruptions[0]
    assert ANSWERS[0].startswith(heard.text)
    assert_says(beginning_of(recording, heard.played_ms), heard.text)
    assert_agree(answer, heard)
    assert messages[3]["content"].strip() == ANSWERS[1]
    await assert_idle(server)


async def test_nvidia_s_own_plugin_speaks_before_the_text_ends(server: str) -> None:
    speech = nvidia.TTS(server=server, use_ssl=False)
    async with speech.stream(conn_options=AT_ONCE) as stream:
        push(stream, "One is here. The house is by the river. And")
        first = await anext(stream)
        stream.end_input()
        assert_says(pcm([first, *[event async for event in stream]]), "One is here. The house is by the river. And")
    await assert_idle(server)


async def test_nvidia_s_own_plugin_has_no_audio_of_what_is_wrong(server: str) -> None:
    """It writes the server's refusal into its log, and raises that nothing came."""
    async with nvidia.TTS(server=server, use_ssl=False, voice="nobody").stream(conn_options=AT_ONCE) as stream:
        stream.push_text("Hello.")
        stream.end_input()
        with pytest.raises(APIError, match="no audio frames"):
            [event async for event in stream]
