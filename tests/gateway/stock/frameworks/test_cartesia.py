"""Cartesia's own SDK, with nothing changed but the addresses, the key and the voice."""

from typing import Any

import cartesia
import pytest

TEXT = ("Good morning. ", "The house ", "is by ", "the river.")
WORDS = {"good", "morning", "house", "river"}
VOICE = {"mode": "id", "id": "default"}
PCM = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 44_100}


@pytest.fixture
def client(url: str, key: str) -> cartesia.AsyncCartesia:
    return cartesia.AsyncCartesia(api_key=key, base_url=url, websocket_base_url=f"ws{url.removeprefix('http')}")


async def test_a_text_in_pieces_sounds_before_it_is_complete_with_its_words(
    client: cartesia.AsyncCartesia, hear: Any
) -> None:
    async with client.tts.websocket_connect() as socket:
        context = socket.context(model_id="sonic-3", voice=VOICE, output_format=PCM, language="en", add_timestamps=True)
        await context.push(TEXT[0])
        responses = context.receive()
        first = await anext(responses)
        while not (first.type == "chunk" and first.audio):
            first = await anext(responses)
        for piece in TEXT[1:]:
            await context.push(piece)
        await context.no_more_inputs()
        told = [first, *[response async for response in responses]]
    audio = b"".join(response.audio for response in told if response.type == "chunk" and response.audio)
    words = [word for each in told if each.type == "timestamps" for word in each.word_timestamps.words]
    assert told[-1].type == "done" and len(hear(audio, 44_100) & WORDS) >= 2
    assert set(words) <= set("".join(TEXT).split()) and words[-1] == "river."


async def test_a_cancel_frees_the_stream(client: cartesia.AsyncCartesia, streams: Any, idle: Any) -> None:
    async with client.tts.websocket_connect() as socket:
        context = socket.context(model_id="sonic-3", voice=VOICE, output_format=PCM)
        await context.push("".join(TEXT) * 20)
        await anext(context.receive())
        assert streams() == 1
        await context.cancel()
        await idle()


async def test_a_whole_text_and_what_is_wrong_are_told_in_its_own_terms(
    client: cartesia.AsyncCartesia, hear: Any
) -> None:
    wav = {"container": "wav", "encoding": "pcm_s16le", "sample_rate": 44_100}
    asked: dict[str, Any] = {"model_id": "sonic-latest", "transcript": "".join(TEXT), "output_format": wav}
    response = await client.tts.generate(**asked, voice="default")
    assert len(hear((await response.read())[44:], 44_100) & WORDS) >= 2
    for error, fields in (
        (cartesia.BadRequestError, {"transcript": " "}),
        (cartesia.AuthenticationError, {"extra_headers": {"X-API-Key": "wrong", "Authorization": "Bearer wrong"}}),
        (cartesia.NotFoundError, {"voice": "6ccbfb76-1fc6-48f7-b71d-91ac6298247b"}),
    ):
        with pytest.raises(error):
            await client.tts.generate(**{**asked, "voice": "default", **fields})
