"""Speaks utterances through a server that streams PCM in answer to POST /v1/audio/speech. Needs aiohttp."""

import base64
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import aiohttp

from sonorant.bench.loads import Speech, Target
from sonorant.bench.speakers import UtteranceFailed
from sonorant.bench.voices import Voices
from sonorant.client.listening.playback import PlaybackMeter

KEY_VARIABLE = "OPENAI_API_KEY"
MAX_ERROR_CHARS = 300


@asynccontextmanager
async def openai_speaker(target: Target, speech: Speech, keys: Sequence[str] = ()) -> AsyncIterator["OpenAiSpeaker"]:
    trusted = ssl.create_default_context(cafile=target.ca) if target.ca else True
    connector = aiohttp.TCPConnector(limit=0, ssl=trusted)  # the load limits the number of connections
    timeout = aiohttp.ClientTimeout(total=None)  # and the time
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield OpenAiSpeaker(session, target, speech, keys or [os.environ.get(KEY_VARIABLE, "")])


class OpenAiSpeaker:
    def __init__(self, session: aiohttp.ClientSession, target: Target, speech: Speech, keys: Sequence[str]) -> None:
        self._session = session
        self._voices = speech.voices
        self._headers = [{"Authorization": f"Bearer {key}"} if key else {} for key in keys]
        self._url = target.address.rstrip("/") + "/audio/speech"
        self._body = {
            "model": target.model,
            "response_format": "pcm",  # 16-bit little-endian samples at 24 kHz, by the protocol
            "stream": True,
            "stream_format": "audio",  # bytes; without it, vLLM-Omni takes `stream` to mean server-sent events
            **dict(target.extra_body),
        }

    async def speak(self, text: str, number: int, meter: PlaybackMeter) -> None:
        odd_byte = b""
        body = {**voice_fields(self._voices, number), **self._body, "input": text}
        try:
            meter.text_sent(time.monotonic())
            headers = self._headers[number % len(self._headers)]
            async with self._session.post(self._url, json=body, headers=headers) as response:
                if response.status != 200:
                    raise UtteranceFailed(f"HTTP_{response.status}", (await response.text())[:MAX_ERROR_CHARS])
                async for data in response.content.iter_any():
                    now_s = time.monotonic()
                    data = odd_byte + data
                    odd_byte = data[len(data) & ~1 :]
                    meter.audio_arrived(now_s, len(data) // 2, data[: len(data) & ~1])
        except aiohttp.ClientError as error:
            raise UtteranceFailed(type(error).__name__, f"{self._url}: {error}") from None

    async def listen(self, text: Callable[[int], str], number: int, meter: PlaybackMeter) -> None:
        raise UtteranceFailed("UNSUPPORTED", "paced loads need sessions, which this protocol does not have")


def voice_fields(voices: Voices, number: int) -> dict[str, object]:
    """The voice of an utterance, in the fields of OpenAI's API and of vLLM-Omni."""
    if voices.task == "clone":
        recording = voices.recording(number)
        data = base64.b64encode(recording.audio).decode()
        told = {"ref_text": recording.transcript} if recording.transcript else {"x_vector_only_mode": True}
        return {"task_type": "Base", "ref_audio": f"data:audio/wav;base64,{data}", **told}
    if voices.task == "design":
        return {"task_type": "VoiceDesign", "instructions": voices.design}
    return {"voice": voices.name}
