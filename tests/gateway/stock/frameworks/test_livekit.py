"""LiveKit's own plugins, with nothing changed but the address."""

from typing import Any

import aiohttp
import pytest
from livekit.agents import APIConnectOptions, APIStatusError, tts
from livekit.plugins import cartesia, openai

# LiveKit 1.x loses the first block of a FLAC file, 96 ms, so one word may be missing.
TEXT = "This is a long day, and I am here with you."
WORDS = {"long", "day", "am", "here", "with", "you"}
LONG = "This is a long story about a house by the river and the people who lived there. " * 40
ONCE = APIConnectOptions(max_retry=0, timeout=10)


async def collected(stream: Any) -> tuple[bytes, int, list[Any]]:
    """All of its audio, the rate, and the events."""
    events = []
    async with stream:
        async for event in stream:
            events.append(event)
    return b"".join(bytes(event.frame.data) for event in events), events[0].frame.sample_rate, events


@pytest.mark.parametrize("response_format", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
async def test_openai_speaks(url: str, key: str, hear: Any, response_format: Any) -> None:
    async with openai.TTS(base_url=f"{url}/v1", api_key=key, response_format=response_format) as service:
        pcm, rate, events = await collected(service.synthesize(TEXT, conn_options=ONCE))
    assert len(hear(pcm, rate) & WORDS) >= 4
    assert len({event.request_id for event in events}) == 1
    assert [event.is_final for event in events].index(True) == len(events) - 1


async def test_openai_takes_bytes_as_well_as_events(url: str, key: str) -> None:
    async with openai.TTS(base_url=f"{url}/v1", api_key=key, model="tts-1", response_format="pcm") as service:
        assert (await collected(service.synthesize(TEXT, conn_options=ONCE)))[0]


async def test_openai_says_something_even_of_a_text_without_words(url: str, key: str) -> None:
    async with openai.TTS(base_url=f"{url}/v1", api_key=key, response_format="pcm") as service:
        assert (await collected(service.synthesize("...", conn_options=ONCE)))[0]


@pytest.mark.parametrize(
    ("status", "options"),
    [(400, {"speed": 9.0}), (401, {"api_key": "wrong"}), (404, {"voice": "nobody-of-this-name"})],
)
async def test_openai_raises_its_own_errors(url: str, key: str, status: int, options: dict[str, Any]) -> None:
    async with openai.TTS(base_url=f"{url}/v1", **{"api_key": key, **options}) as service:
        with pytest.raises(APIStatusError) as caught:
            await collected(service.synthesize(TEXT, conn_options=ONCE))
    assert caught.value.status_code == status and not caught.value.retryable


async def test_openai_closed_frees_the_stream_and_one_too_many_is_told_to_come_again(
    url: str, narrow_key: str, streams: Any, idle: Any
) -> None:
    async with openai.TTS(base_url=f"{url}/v1", api_key=narrow_key, response_format="pcm") as service:
        async with service.synthesize(LONG, conn_options=ONCE) as stream:
            await anext(stream)
            assert streams() == 1, "audio comes before all of it is made"
            with pytest.raises(APIStatusError) as caught:
                await collected(service.synthesize(TEXT, conn_options=ONCE))
            assert caught.value.status_code == 429 and caught.value.retryable
        await idle()


def cartesia_tts(url: str, key: str, session: aiohttp.ClientSession, **options: Any) -> cartesia.TTS:
    return cartesia.TTS(base_url=url, api_key=key, http_session=session, **{"voice": "default", **options})


async def test_cartesia_speaks_with_words_and_their_times(url: str, key: str, hear: Any) -> None:
    metrics = []
    async with aiohttp.ClientSession() as session, cartesia_tts(url, key, session) as service:
        service.on("metrics_collected", metrics.append)
        stream = service.stream(conn_options=ONCE)
        for word in TEXT.split():
            stream.push_text(f"{word} ")
        stream.end_input()
        pcm, rate, events = await collected(stream)
    assert len(hear(pcm, rate) & WORDS) >= 4
    assert len({event.request_id for event in events}) == 1 and len(metrics) == 1
    assert max(event.frame.duration for event in events) <= 0.25
    timed = [word for event in events for word in event.frame.userdata.get(tts.tts.USERDATA_TIMED_TRANSCRIPT, [])]
    assert "".join(timed).split() == TEXT.split()
    assert [word.start_time for word in timed] == sorted(word.start_time for word in timed)


async def test_cartesia_speaks_a_whole_text(url: str, key: str, hear: Any) -> None:
    async with aiohttp.ClientSession() as session, cartesia_tts(url, key, session) as service:
        pcm, rate, _ = await collected(service.synthesize(TEXT, conn_options=ONCE))
    assert len(hear(pcm, rate) & WORDS) >= 4


async def test_cartesia_stream_without_a_text_is_clean(url: str, key: str) -> None:
    async with aiohttp.ClientSession() as session, cartesia_tts(url, key, session) as service:
        stream = service.stream(conn_options=ONCE)
        stream.end_input()
        async with stream:
            assert [event async for event in stream] == []


async def test_cartesia_raises_its_own_errors(url: str, key: str) -> None:
    async with aiohttp.ClientSession() as session, cartesia_tts(url, "wrong", session) as service:
        stream = service.stream(conn_options=ONCE)
        stream.push_text(TEXT)
        stream.end_input()
        with pytest.raises(APIStatusError) as caught:
            await collected(stream)
        assert caught.value.status_code == 401


async def test_cartesia_sounds_before_the_text_is_complete(url: str, key: str) -> None:
    """The plugin sends whole sentences."""
    async with aiohttp.ClientSession() as session, cartesia_tts(url, key, session) as service:
        stream = service.stream(conn_options=ONCE)
        stream.push_text("Good morning to all of you. The house is by the river. And ")
        assert (await anext(stream)).frame.duration > 0
        stream.push_text("that is all.")
        stream.end_input()
        assert (await collected(stream))[2][-1].is_final


async def test_cartesia_closed_leaves_nothing_behind(url: str, key: str, streams: Any, idle: Any) -> None:
    async with aiohttp.ClientSession() as session, cartesia_tts(url, key, session) as service:
        stream = service.stream(conn_options=ONCE)
        stream.push_text(LONG)
        async for _ in stream:
            break
        assert streams() >= 1
        await stream.aclose()
    await idle()
