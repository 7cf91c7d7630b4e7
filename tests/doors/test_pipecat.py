"""`sonorant.pipecat` under Pipecat's own test helper, against a real server."""

import asyncio
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pipecat.frames.frames import (
    AggregatedTextProgressFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    MetricsFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.nvidia.tts import NvidiaTTSService, NvidiaTTSSynthesisMode
from pipecat.services.tts_service import TextAggregationMode
from pipecat.tests.utils import SleepFrame, run_test
from pipecat.utils.errors import ErrorCategory

from clients.examples.pipecat_agent import ANSWERS, talk
from sonorant.client.listening.playback_clock import PlaybackClock
from sonorant.pipecat import Heard, SonorantTTSService
from tests.doors.conftest import attentive_caller
from tests.doors.judge import HEARING_HZ, assert_agree, assert_idle, assert_says, beginning_of, watched

TEXT = "The quick brown fox jumps over the lazy dog. It (really) was three o'clock, or four."


def tokens(text: str) -> list[Frame]:
    return [LLMTextFrame(token) for token in re.findall(r"\s?\S+", text)]


def turn(text: str) -> list[Frame]:
    return [LLMFullResponseStartFrame(), *tokens(text), LLMFullResponseEndFrame()]


def pcm(frames: Any) -> bytes:
    return b"".join(frame.audio for frame in frames if isinstance(frame, TTSAudioRawFrame))


def errors(frames: Any) -> list[ErrorFrame]:
    return [frame for frame in frames if isinstance(frame, ErrorFrame)]


async def test_a_turn_is_spoken_and_its_words_come_with_their_times(server: str) -> None:
    speech = SonorantTTSService(target=server, sample_rate=HEARING_HZ)
    down, up = await run_test(speech, frames_to_send=turn(TEXT), pipeline_params=PipelineParams(enable_metrics=True))
    assert not errors(up)
    audio = [frame for frame in down if isinstance(frame, TTSAudioRawFrame)]
    assert {(frame.sample_rate, frame.num_channels) for frame in audio} == {(HEARING_HZ, 1)}
    assert_says(pcm(down), TEXT)
    words = [frame for frame in down if isinstance(frame, TTSTextFrame)]
    assert " ".join(word.text for word in words) == TEXT
    assert all(before.pts <= after.pts for before, after in pairwise(words))
    assert words[-1].pts > words[0].pts
    kinds = [type(frame) for frame in down if not isinstance(frame, MetricsFrame | AggregatedTextProgressFrame)]
    assert kinds[:2] == [LLMFullResponseStartFrame, TTSStartedFrame]
    assert kinds[-2:] == [TTSStoppedFrame, LLMFullResponseEndFrame]
    assert kinds.count(TTSStartedFrame) == kinds.count(TTSStoppedFrame) == 1
    await assert_idle(server)


async def test_sentences_may_be_asked_for_and_several_texts_are_spoken_in_their_order(server: str) -> None:
    speech = SonorantTTSService(
        target=server, sample_rate=HEARING_HZ, text_aggregation_mode=TextAggregationMode.SENTENCE
    )
    frames = [*turn("One is here. Two for you."), TTSSpeakFrame("It is three.")]
    down, up = await run_test(speech, frames_to_send=frames)
    assert not errors(up)
    words = [frame.text for frame in down if isinstance(frame, TTSTextFrame)]
    assert " ".join(words) == "One is here. Two for you. It is three."


async def test_it_speaks_before_the_text_ends_and_an_interruption_stops_the_server(server: str) -> None:
    speech = SonorantTTSService(target=server)
    interrupted: list[Heard] = []

    @speech.event_handler("on_speech_interrupted")
    async def on_speech_interrupted(_: object, __: str, heard: Heard) -> None:
        interrupted.append(heard)
        await assert_idle(server)

    frames = [LLMFullResponseStartFrame(), *tokens(TEXT * 5), SleepFrame(3.0), InterruptionFrame(), SleepFrame(1.0)]
    down, up = await run_test(speech, frames_to_send=frames)
    assert not errors(up)
    assert pcm(down)  # though the text never ended
    (heard,) = interrupted
    assert heard.text + heard.unheard == TEXT * 5
    assert heard.text and heard.unheard
    assert 0 < heard.played_ms < 4000
    assert len(heard.text.split()) == pytest.approx(heard.played_ms / 1000 * 3, abs=5)  # about three words a second


class SluggishPlayer(PlaybackClock):
    """Playback that is reported late: what seemed to be a delay is taken back, word by word."""

    delay_s = 4.0

    def late_s(self, key: str) -> float:
        self.delay_s /= 2
        return super().late_s(key) + self.delay_s


async def test_words_keep_their_order_when_playback_was_not_as_late_as_it_seemed(server: str) -> None:
    speech = SonorantTTSService(target=server, sample_rate=HEARING_HZ)
    speech._playback = SluggishPlayer()
    down, up = await run_test(speech, frames_to_send=turn(TEXT))
    assert not errors(up)
    words = [frame for frame in down if isinstance(frame, TTSTextFrame)]
    assert " ".join(word.text for word in sorted(words, key=lambda word: word.pts)) == TEXT


class BusyService(SonorantTTSService):
    """Its second word waits in the queue while the end of the text makes a sentence of both."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._is_sentence = asyncio.Event()

    async def _push_sequencer_frames(self, frames: list[Frame], context_id: str | None) -> None:
        await super()._push_sequencer_frames(frames, context_id)
        if frames:
            self._is_sentence.set()

    async def _add_word_timestamps(self, word_times: list[tuple[str, float]], *args: Any, **kwargs: Any) -> None:
        if word_times[0][0] == "right.":
            await asyncio.wait_for(self._is_sentence.wait(), 60)
        await super()._add_word_timestamps(word_times, *args, **kwargs)


async def test_a_word_that_waited_for_its_sentence_stays_before_the_next_one(server: str) -> None:
    speech = BusyService(target=server, sample_rate=HEARING_HZ)
    *text, end = turn("All right.")
    down, up = await run_test(speech, frames_to_send=[*text, SleepFrame(2), end])
    assert not errors(up)
    assert [frame.text for frame in down if isinstance(frame, TTSTextFrame)] == ["All", "right."]


async def test_text_without_speech_is_a_moment_of_silence_and_no_failure(server: str) -> None:
    speech = SonorantTTSService(target=server, max_consecutive_zero_audio_contexts=1)
    down, up = await run_test(speech, frames_to_send=[*turn("..."), *turn("Hello.")])
    assert not errors(up)
    assert speech.is_usable
    assert len(pcm(down)) > 24_000


async def test_what_the_server_refuses_is_an_error_of_its_category(server: str) -> None:
    nobody = SonorantTTSService(target=server, settings=SonorantTTSService.Settings(voice="nobody"))
    _, up = await run_test(nobody, frames_to_send=turn("Hello there."))
    assert errors(up)[0].category is ErrorCategory.INVALID_REQUEST
    assert "no voice 'nobody'" in errors(up)[0].error
    assert not nobody.is_usable
    away = SonorantTTSService(target="127.0.0.1:1")
    _, up = await run_test(away, frames_to_send=turn("Hello there."))
    assert errors(up)[0].category is ErrorCategory.CONNECTIVITY
    assert away.is_usable
    garbled = SonorantTTSService(target=server)
    _, up = await run_test(garbled, frames_to_send=[*turn("Hello \0 there."), SleepFrame(0.5), *turn("Hello.")])
    assert errors(up)[0].category is ErrorCategory.APPLICATION
    assert garbled.is_usable


class StillWriting(FrameProcessor):
    """A model that has not noticed that the call is over."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        if isinstance(frame, EndFrame):
            for late in turn("Is anybody there?"):
                await self.push_frame(late)


async def test_text_behind_the_end_of_the_pipeline_is_not_spoken_and_no_error(server: str) -> None:
    speech = Pipeline([StillWriting(), SonorantTTSService(target=server)])
    down, up = await run_test(speech, frames_to_send=turn("Hello."))
    assert not errors(up)
    assert "".join(frame.text for frame in down if isinstance(frame, TTSTextFrame)) == "Hello."


async def test_settings_count_for_the_next_turn(server: str) -> None:
    speech = SonorantTTSService(target=server)
    update = TTSUpdateSettingsFrame(delta=SonorantTTSService.Settings(voice="nobody"))
    down, up = await run_test(speech, frames_to_send=[*turn("Hello."), update, *turn("Hello.")])
    assert len(pcm(down)) > 24_000
    assert "no voice 'nobody'" in errors(up)[0].error


async def test_the_example_agent_hears_answers_and_is_interrupted(
    server: str, lines: tuple[bytes, bytes], tmp_path: Path
) -> None:
    recording = tmp_path / "agent.wav"
    with attentive_caller(lines, recording) as caller:
        messages, interruptions = await talk(caller, str(recording), server)
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert "weather" in messages[0]["content"]
    answer = messages[1]["content"]
    assert ANSWERS[0].startswith(answer) and 3 < len(answer.split()) < 25
    heard = interruptions[0]
    assert ANSWERS[0].startswith(heard.text)
    assert_says(beginning_of(recording, heard.played_ms), heard.text)
    assert_agree(answer, heard)
    assert messages[3]["content"] == ANSWERS[1]
    await assert_idle(server)


def nvidia(server: str, **settings: Any) -> NvidiaTTSService:
    options = NvidiaTTSService.Settings(**settings)
    return NvidiaTTSService(server=server, use_ssl=False, sample_rate=HEARING_HZ, settings=options)


@pytest.mark.parametrize("mode", list(NvidiaTTSSynthesisMode))
async def test_nvidia_s_own_service_speaks(server: str, mode: NvidiaTTSSynthesisMode) -> None:
    frames = [*turn("One is here. The house is by the river."), SleepFrame(5)]
    down, up = await run_test(nvidia(server, synthesis_mode=mode), frames_to_send=frames)
    assert not errors(up)
    assert_says(pcm(down), "One is here. The house is by the river.")
    await assert_idle(server)


@pytest.mark.parametrize("mode", list(NvidiaTTSSynthesisMode))
async def test_nvidia_s_own_service_sounds_early_and_interrupted_it_frees_the_stream(
    server: str, mode: NvidiaTTSSynthesisMode
) -> None:
    def frames(busy: Callable[[], int]) -> Iterator[Frame]:
        """An interruption when it speaks, though the text never ended, and nothing more until that is over."""
        yield from [LLMFullResponseStartFrame(), *tokens("The house is by the river. " * 40)]
        while not busy():
            yield SleepFrame(0.02)
        yield SleepFrame(1.0)
        yield InterruptionFrame()
        for _ in range(50):
            yield SleepFrame(0.02)
            if not busy():
                return
        raise AssertionError("it is still spoken a second later")

    async with watched(server) as busy:
        down, up = await run_test(nvidia(server, synthesis_mode=mode), frames_to_send=frames(busy))
    assert not errors(up) and pcm(down)


async def test_nvidia_s_own_service_reports_what_is_wrong(server: str) -> None:
    _, up = await run_test(nvidia(server, voice="nobody"), frames_to_send=[*turn("Hello."), SleepFrame(1)])
    assert "no voice 'nobody'" in errors(up)[0].error
