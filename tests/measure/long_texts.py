"""Whether a text that is spoken in segments is as good as its sentences alone: `python -m tests.measure.long_texts`.

A server and a gateway of its own speak everyday sentences with a built-in voice: as one text, in paragraphs, at four
doors at once, and one by one. Told are the words that a recognizer hears wrong, and how level and pitch change from the
500 ms before to the 500 ms after a sentence's end: at joints of segments, and within them.
"""

import argparse
import asyncio
import base64
import json
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import aiohttp
import numpy as np
import soxr

from sonorant.client import SpeechClient, synthesis_config
from sonorant.client.local_server import local_server
from sonorant.engine.types import Int16Array
from sonorant.training.evaluation import acoustics
from sonorant.training.evaluation.recognizer import (
    SAMPLE_RATE_HZ,
    Dictation,
    Recognizer,
    Whisper,
    edit_distance,
    words_of,
)
from sonorant.tts.v1.synthesis_pb2 import Mark
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import eventually

EVERYDAY = Path(acoustics.__file__).with_name("everyday.txt")
RATE_HZ = 24_000
SIDE_MS = 500
PARAGRAPH = 6  # sentences
PIECE_S = 20.0  # as long as a recognizer hears in one go; cut where it is quietest
CONCURRENT = 4
_RECOGNIZERS = {"pocketsphinx": Dictation, "whisper": Whisper}


async def over_grpc(client: SpeechClient, text: str, voice: str) -> tuple[bytes, list[Mark]]:
    pcm, marks = bytearray(), list[Mark]()
    async for payload in client.stream(text, synthesis_config(voice=voice), timestamps=True, max_lead_ms=0):
        pcm += getattr(payload, "data", b"")
        marks += getattr(payload, "marks", ())
    return bytes(pcm), marks


async def over_http(http: aiohttp.ClientSession, text: str, voice: str) -> bytes:
    body = {"model": "tts-1", "input": text, "voice": voice, "response_format": "pcm"}
    async with http.post("/v1/audio/speech", json=body) as response:
        return await response.read()


async def over_events(http: aiohttp.ClientSession, text: str, voice: str) -> bytes:
    body = {"model": "tts-1", "input": text, "voice": voice, "response_format": "pcm", "stream_format": "sse"}
    async with http.post("/v1/audio/speech", json=body) as response:
        lines = [line async for line in response.content if line.startswith(b"data: {")]
    return b"".join(base64.b64decode(json.loads(line[6:]).get("audio", "")) for line in lines)


async def over_websocket(http: aiohttp.ClientSession, text: str, voice: str) -> bytes:
    """Word by word."""
    async with http.ws_connect("/v1/audio/speech/stream") as socket:
        about = {"type": "session.config", "voice": voice, "response_format": "pcm", "stream_audio": True}
        await socket.send_json(about)
        for word in text.split(" "):
            await socket.send_json({"type": "input.text", "text": f"{word} "})
        await socket.send_json({"type": "input.done"})
        pcm = b""
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                pcm += message.data
            elif message.json()["type"] == "session.done":
                break
        return pcm


async def measure(voice: str, num_sentences: int, recognizer: Recognizer) -> None:
    sentences = EVERYDAY.read_text(encoding="utf-8").splitlines()[:num_sentences]
    text = "\n\n".join(" ".join(part) for part in _paragraphs(sentences))
    with tempfile.TemporaryDirectory() as folder:
        async with local_server() as target, SpeechClient(target) as client:
            with GatewayProcess(Path(folder) / "log", "--server", target) as gateway:
                timeout = aiohttp.ClientTimeout(total=1200)
                async with aiohttp.ClientSession(gateway.url, timeout=timeout, read_bufsize=1 << 22) as http:
                    await eventually(lambda: _status(http), 200)
                    (pcm, marks), *others = await asyncio.gather(
                        over_grpc(client, text, voice),
                        over_http(http, text, voice),
                        over_events(http, text, voice),
                        over_websocket(http, text, voice),
                    )
            alone = await _alone(client, sentences, voice)
            segments = (await client.explain(text, synthesis_config(voice=voice))).segments
    wanted, whole = words_of(text), np.frombuffer(pcm, np.int16)
    print(f"{voice}: {len(text)} characters in {len(segments)} segments, {len(whole) / RATE_HZ:.1f} s")
    wrong_alone = sum(
        edit_distance(words_of(each), recognizer.hear(_for_recognizers(one)))
        for each, one in zip(sentences, alone, strict=True)
    )
    print(f"{wrong_alone} of {len(wanted)} words are heard wrong of the sentences alone")
    known: dict[bytes, int] = {}
    for door, heard in zip(("gRPC", "HTTP", "events", "WebSocket"), (pcm, *others), strict=True):
        if (same := heard in known) is False:
            known[heard] = _wrong(wanted, np.frombuffer(heard, np.int16), recognizer)
        print(f"{known[heard]} of {len(wanted)} by {door}{', whose bytes are those above' if same else ''}")
    _tell_joints(text, whole, marks, {segment.text_start for segment in segments})


def _paragraphs(sentences: Sequence[str]) -> list[Sequence[str]]:
    return [sentences[begin : begin + PARAGRAPH] for begin in range(0, len(sentences), PARAGRAPH)]


async def _status(http: aiohttp.ClientSession) -> int:
    async with http.get("/ready") as response:
        return response.status


async def _alone(client: SpeechClient, sentences: Sequence[str], voice: str) -> list[Int16Array]:
    turns = asyncio.Semaphore(CONCURRENT)

    async def one(text: str) -> Int16Array:
        async with turns:
            clip = await client.synthesize(text, synthesis_config(voice=voice, non_streaming_mode=False))
        samples: Int16Array = np.frombuffer(clip.audio, np.int16)
        return samples

    return await asyncio.gather(*map(one, sentences))


def _wrong(wanted: Sequence[str], samples: Int16Array, recognizer: Recognizer) -> int:
    """Count the words heard wrong in a long recording."""
    heard, size = list[str](), RATE_HZ // 10
    while len(samples):
        piece = samples[: int(PIECE_S * RATE_HZ)]
        if len(piece) < len(samples):
            half = len(piece) // 2 // size * size
            blocks = piece[half : len(piece) // size * size].astype(float).reshape(-1, size)
            piece = piece[: half + int(np.argmin((blocks**2).mean(1))) * size + size // 2]
        heard += recognizer.hear(_for_recognizers(piece))
        samples = samples[len(piece) :]
    return edit_distance(wanted, heard)


def _tell_joints(text: str, samples: Int16Array, marks: Sequence[Mark], joints: set[int]) -> None:
    for name, at_joint in (("joints of segments", True), ("sentence ends within them", False)):
        changes = [
            _change(samples, before, after)
            for before, after in pairwise(marks)
            if text[before.text_end - 1] in ".!?"
            and at_joint == any(before.text_end <= at <= after.text_start for at in joints)
        ]
        _tell(name, changes)


def _for_recognizers(samples: Int16Array) -> Int16Array:
    heard: Int16Array = soxr.resample(samples, RATE_HZ, SAMPLE_RATE_HZ).astype(np.int16)
    return heard


def _change(samples: Int16Array, before: Mark, after: Mark) -> tuple[float, float, int]:
    """Return dB, semitones and the pause in ms from one word to the next."""
    end, begin = before.end_ms * RATE_HZ // 1000, after.start_ms * RATE_HZ // 1000
    side = SIDE_MS * RATE_HZ // 1000
    levels, pitches = [], []
    for part in (samples[max(0, end - side) : end], samples[begin : begin + side]):
        levels.append(10 * np.log10(np.mean(part.astype(float) ** 2)))
        pitches.append(acoustics.median_pitch_hz(_for_recognizers(part)))
    return levels[1] - levels[0], 12 * float(np.log2(pitches[1] / pitches[0])), after.start_ms - before.end_ms


def _tell(name: str, changes: Sequence[tuple[float, float, int]]) -> None:
    level, pitch, pause = (np.nanmedian(np.abs(each)) for each in zip(*changes, strict=True))
    print(f"{len(changes)} {name}: level {level:.1f} dB, pitch {pitch:.1f} semitones, pause {pause:.0f} ms (medians)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--voice", default="linden")
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--recognizer", choices=_RECOGNIZERS, default="pocketsphinx")
    args = parser.parse_args()
    asyncio.run(measure(args.voice, args.sentences, _RECOGNIZERS[args.recognizer]()))


if __name__ == "__main__":
    main()
