"""What vLLM-Omni's example client sends, by the library that it uses; the client itself is in no wheel."""

import asyncio
import json
from typing import Any

import websockets

TEXT = "Good morning. The house is by the river."
WORDS = {"good", "morning", "house", "river"}
CONFIG = {
    "type": "session.config",
    "speaker": "default",
    "task_type": "CustomVoice",
    "language": "Auto",
    "response_format": "pcm",
    "speed": 1.0,
    "stream_audio": True,
}


async def test_words_are_spoken_while_they_are_sent_and_a_close_frees_the_stream(
    url: str, key: str, hear: Any, streams: Any, idle: Any
) -> None:
    address = f"ws{url.removeprefix('http')}/v1/audio/speech/stream"
    async with websockets.connect(address, additional_headers={"Authorization": f"Bearer {key}"}) as socket:

        async def say(text: str) -> None:
            await socket.send(json.dumps({"type": "input.text", "text": text}))

        await socket.send(json.dumps({**CONFIG, "speaker": "nobody-of-this-name"}))
        await say("Hello.")
        told = json.loads(await socket.recv())
        assert told["type"] == "error" and "nobody-of-this-name" in told["message"]
    async with websockets.connect(address, additional_headers={"Authorization": f"Bearer {key}"}) as socket:
        await socket.send(json.dumps(CONFIG))
        first, *rest = TEXT.split(" ")
        await say(f"{first} ")
        assert json.loads(await socket.recv())["type"] == "audio.start"
        audio = await socket.recv()
        assert isinstance(audio, bytes), "before the text was complete"
        for word in rest:
            await say(f"{word} ")
            await asyncio.sleep(0.02)
        await socket.send(json.dumps({"type": "input.done"}))
        while True:
            message = await socket.recv()
            if isinstance(message, bytes):
                audio += message
            elif (told := json.loads(message))["type"] == "session.done":
                break
        assert told["total_sentences"] == 1 and len(hear(audio, 24_000) & WORDS) >= 2
        await say(TEXT * 20)
        await socket.recv()
        assert streams() == 1
    await idle()
