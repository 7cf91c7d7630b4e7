"""Pipecat's own services, with nothing changed but the address."""

from collections.abc import Iterator
from typing import Any

from pipecat.frames.frames import (
    ErrorFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSTextFrame,
)
from pipecat.services.cartesia.tts import CartesiaHttpTTSService, CartesiaTTSService
from pipecat.services.openai.tts import OpenAITTSService
from pipecat.services.tts_service import TextAggregationMode
from pipecat.tests.utils import SleepFrame, run_test

TEXT = "Good morning. The house is by the river."
WORDS = {"good", "morning", "house", "river"}
LONG = "This is a long story about a house by the river and the people who lived there. " * 6


def audio(frames: Any) -> bytes:
    return b"".join(frame.audio for frame in frames if isinstance(frame, TTSAudioRawFrame))


def cartesia(url: str, key: str, **options: Any) -> CartesiaTTSService:
    settings = CartesiaTTSService.Settings(voice="default")
    address = f"ws{url.removeprefix('http')}/tts/websocket"
    return CartesiaTTSService(api_key=key, url=address, settings=settings, **options)


def streamed(text: str, pause_s: float = 0.02) -> list[Any]:
    """As a language model says it, word by word."""
    frames: list[Any] = [LLMFullResponseStartFrame()]
    for word in text.split():
        frames += [LLMTextFrame(f"{word} "), SleepFrame(pause_s)]
    return [*frames, LLMFullResponseEndFrame()]


async def test_openai_speaks(url: str, key: str, hear: Any) -> None:
    service = OpenAITTSService(api_key=key, base_url=f"{url}/v1")
    down, up = await run_test(service, frames_to_send=[TTSSpeakFrame(TEXT), SleepFrame(4)])
    assert not up and len(hear(audio(down), 24_000) & WORDS) >= 2


async def test_openai_reports_a_wrong_key(url: str) -> None:
    service = OpenAITTSService(api_key="wrong", base_url=f"{url}/v1")
    _, up = await run_test(service, frames_to_send=[TTSSpeakFrame(TEXT), SleepFrame(1)])
    assert any(isinstance(frame, ErrorFrame) and "401" in frame.error for frame in up)


async def test_cartesia_speaks_token_by_token_and_sentence_by_sentence(url: str, key: str, hear: Any) -> None:
    """By their times the words are in order. Pipecat 1.14 itself can pass on the second word of a sentence before the
    first: it gets to know a sentence only when its text is over, and queues words that came before behind later ones.
    """
    for mode in (TextAggregationMode.TOKEN, TextAggregationMode.SENTENCE):
        service = cartesia(url, key, text_aggregation_mode=mode)
        down, up = await run_test(service, frames_to_send=[*streamed(TEXT), SleepFrame(5)])
        timed = sorted((frame for frame in down if isinstance(frame, TTSTextFrame)), key=lambda frame: frame.pts)
        assert not up and [frame.text.strip() for frame in timed] == TEXT.split(), mode
        assert len(hear(audio(down), 24_000) & WORDS) >= 2, mode


async def test_cartesia_sounds_before_the_text_is_complete(url: str, key: str) -> None:
    service = cartesia(url, key, text_aggregation_mode=TextAggregationMode.TOKEN)
    frames = streamed("Good morning to all of you who have come to the house.", 0.2)
    down, _ = await run_test(service, frames_to_send=[*frames, SleepFrame(4)])
    kinds = [type(frame) for frame in down]
    assert kinds.index(TTSAudioRawFrame) < kinds.index(LLMFullResponseEndFrame)


def interrupted(frames: list[Any], streams: Any) -> Iterator[Any]:
    """The frames; when they are spoken an interruption, and nothing more until that is over: a second at most."""
    yield from frames
    while not streams():
        yield SleepFrame(0.02)
    yield SleepFrame(0.5)
    yield InterruptionFrame()
    for _ in range(50):
        yield SleepFrame(0.02)
        if not streams():
            return
    raise AssertionError("it is still spoken a second later")


async def test_interrupted_they_free_the_stream(url: str, key: str, streams: Any) -> None:
    by_token = cartesia(url, key, text_aggregation_mode=TextAggregationMode.TOKEN)
    for service, frames in (
        (by_token, streamed(LONG, 0.002)),
        (OpenAITTSService(api_key=key, base_url=f"{url}/v1"), [TTSSpeakFrame(LONG * 5)]),
    ):
        _, up = await run_test(service, frames_to_send=interrupted(frames, streams))  # type: ignore[arg-type]
        assert not up, service


async def test_openai_sounds_before_the_text_is_complete(url: str, key: str) -> None:
    """The service sends whole sentences."""
    frames = streamed("Good morning. The house is by the river. " * 3, 0.2)
    down, _ = await run_test(
        OpenAITTSService(api_key=key, base_url=f"{url}/v1"), frames_to_send=[*frames, SleepFrame(4)]
    )
    kinds = [type(frame) for frame in down]
    assert kinds.index(TTSAudioRawFrame) < kinds.index(LLMFullResponseEndFrame)


async def test_cartesia_over_http(url: str, key: str, hear: Any) -> None:
    """A short text: the service reads all of it before it plays, and gives up after three seconds."""
    settings = CartesiaHttpTTSService.Settings(voice="default")
    service = CartesiaHttpTTSService(api_key=key, base_url=url, settings=settings)
    down, up = await run_test(service, frames_to_send=[TTSSpeakFrame("Good morning."), SleepFrame(4)])
    assert not up and hear(audio(down), 24_000) & WORDS


async def test_cartesia_reports_what_is_wrong(url: str, key: str) -> None:
    settings = CartesiaTTSService.Settings(voice="nobody-of-this-name")
    address = f"ws{url.removeprefix('http')}/tts/websocket"
    service = CartesiaTTSService(api_key=key, url=address, settings=settings)
    _, up = await run_test(service, frames_to_send=[*streamed("Hello there."), SleepFrame(1)])
    assert any(isinstance(frame, ErrorFrame) and "voice_not_found" in frame.error for frame in up)
