"""Whether a text that is spoken in segments is as good as its sentences alone: `python -m tests.measure.long_texts`.

A server and a gateway of its own speak everyday sentences with a built-in voice: one by one, and as one text, in
paragraphs, at five doors at once. Told are the words that a recognizer hears wrong, and how level and pitch change from
the 500 ms before to the 500 ms after a sentence's end: at joints of segments, and at all ends within them. A
chapter of 5,000 words takes long, so it can be had piece by piece: `--words 5000 --keep FOLDER --parts alone`; the text
is always the same.
"""

import argparse
import asyncio
import base64
import itertools
import json
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import aiohttp
import numpy as np
import soxr

from sonorant.client import SpeechClient, synthesis_config
from sonorant.client.local_server import local_server
from sonorant.engine.types import Int16Array
from sonorant.service.utterance.part import BLOCK_MS, LOUD
from sonorant.training.evaluation import acoustics
from sonorant.training.evaluation.recognizer import (
    SAMPLE_RATE_HZ,
    Dictation,
    Recognizer,
    Whisper,
    edit_distance,
    words_of,
)
from sonorant.training.evaluation.sentences import everyday_sentences
from sonorant.training.text.grammar import Grammar, everyday_file
from sonorant.training.text.numbers import number_words
from sonorant.tts.v1.synthesis_pb2 import Mark
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import eventually

PARTS = ("alone", "gRPC", "HTTP", "events", "Speak", "WebSocket")
RATE_HZ = 24_000
SIDE_MS = 500
PAUSE_MS = 500  # between sentences that were spoken alone, as within a segment
MARKS_OFF_MS = 400  # by more than any mark is
PARAGRAPH = 6  # sentences
PIECE_S = 20.0  # as long as a recognizer hears in one go; cut where it is quietest
CONCURRENT = 4
_SLOTS = {
    "first_name": lambda chance, form: chance.choice(("Anna", "David", "Emma", "Peter", "Sarah", "Tom")),
    "number_words": number_words,
    "number_digits": number_words,
    "time_digits": number_words,
}
_RECOGNIZERS: dict[str, Callable[[], Recognizer]] = {"pocketsphinx": Dictation, "whisper": Whisper}


class Word(NamedTuple):
    text_start: int
    text_end: int
    start_ms: int
    end_ms: int


OverDoor = Callable[[SpeechClient, str, str], Awaitable[tuple[bytes, list[Mark]]]]
Change = tuple[float, float, int]  # dB, semitones, and the pause in ms


async def over_grpc(client: SpeechClient, text: str, voice: str) -> tuple[bytes, list[Mark]]:
    pcm, marks = bytearray(), list[Mark]()
    async for payload in client.stream(text, synthesis_config(voice=voice), timestamps=True, max_lead_ms=0):
        pcm += getattr(payload, "data", b"")
        marks += getattr(payload, "marks", ())
    return bytes(pcm), marks


async def over_speak(client: SpeechClient, text: str, voice: str) -> tuple[bytes, list[Mark]]:
    """Word by word."""
    pcm, marks = bytearray(), list[Mark]()
    async with client.speak(synthesis_config(voice=voice), timestamps=True, max_lead_ms=0) as session:

        async def write() -> None:
            for word in text.split(" "):
                await session.send_text(f"{word} ")
            await session.finish()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            async for event in session:
                pcm += getattr(event.payload, "data", b"")
                marks += getattr(event.payload, "marks", ())
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
        pcm = bytearray()
        while (message := await socket.receive()).type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
            if message.type is aiohttp.WSMsgType.BINARY:
                pcm += message.data
                continue
            told = message.json()
            if told["type"] == "error" or "finish_reason" in told:
                raise RuntimeError(f"after {len(pcm) / 2 / RATE_HZ:.0f} s: {told}")
            if told["type"] == "session.done":
                return bytes(pcm)
        raise RuntimeError(f"closed after {len(pcm) / 2 / RATE_HZ:.0f} s: {message}")


async def speak(folder: Path, voice: str, sentences: Sequence[str], parts: Sequence[str]) -> None:
    """Write the audio of each part into the folder, unless it is there."""
    text = text_of(sentences)
    async with _running() as (client, http):
        doors: dict[str, Callable[[], Awaitable[bytes]]] = {
            "gRPC": lambda: _with_places(folder / f"{voice}-gRPC-places.json", over_grpc, client, text, voice),
            "Speak": lambda: _with_places(folder / f"{voice}-Speak-places.json", over_speak, client, text, voice),
            "HTTP": lambda: over_http(http, text, voice),
            "events": lambda: over_events(http, text, voice),
            "WebSocket": lambda: over_websocket(http, text, voice),
        }

        async def write(part: str) -> None:
            (folder / f"{voice}-{part}.pcm").write_bytes(await doors[part]())

        missing = [part for part in parts if not (folder / f"{voice}-{part}.pcm").exists()]
        await asyncio.gather(*(write(part) for part in missing if part in doors))
        if "alone" in missing:
            alone = await _alone(client, sentences, voice)
            np.savez(folder / f"{voice}-alone.npz", *alone)


async def _with_places(path: Path, over: OverDoor, client: SpeechClient, text: str, voice: str) -> bytes:
    """Speak, and write down where words and segments are."""
    joints = await _segments(client, text, voice)
    pcm, marks = await over(client, text, voice)
    places = json.dumps({"joints": joints, "words": _words(marks)})
    await asyncio.to_thread(path.write_text, places)
    return pcm


async def _segments(client: SpeechClient, text: str, voice: str) -> list[int]:
    """Return where each begins."""
    explained = await client.explain(text, synthesis_config(voice=voice))
    return [segment.text_start for segment in explained.segments]


def _words(marks: Sequence[Mark]) -> list[tuple[int, int, int, int]]:
    return [(mark.text_start, mark.text_end, mark.start_ms, mark.end_ms) for mark in marks]


def hear(folder: Path, voice: str, sentences: Sequence[str], parts: Sequence[str], recognizer: Recognizer) -> None:
    text = text_of(sentences)
    wanted = words_of(text)
    print(f"{voice}: {len(wanted)} words, {len(text)} characters")
    if "alone" in parts:
        # Heard as the others are, several sentences in one go: recognizers guess better where a sentence begins.
        pause = np.zeros(PAUSE_MS * RATE_HZ // 1000, np.int16)
        alone = np.load(folder / f"{voice}-alone.npz").values()
        wrong = _wrong(wanted, np.concatenate([part for one in alone for part in (one, pause)]), recognizer)
        print(f"{wrong} of {len(wanted)} words are heard wrong of the sentences alone", flush=True)
    known: dict[bytes, int] = {}
    for part in parts:
        if part == "alone":
            continue
        pcm = (folder / f"{voice}-{part}.pcm").read_bytes()
        if (same := pcm in known) is False:
            known[pcm] = _wrong(wanted, np.frombuffer(pcm, np.int16), recognizer)
        about = f"{len(pcm) / 2 / RATE_HZ:.1f} s{', the same bytes' if same else ''}"
        print(f"{known[pcm]} of {len(wanted)} by {part}: {about}", flush=True)
        places = folder / f"{voice}-{part}-places.json"
        if places.exists():
            _tell_joints(places, text, np.frombuffer(pcm, np.int16))


def text_of(sentences: Sequence[str]) -> str:
    paragraphs = [sentences[begin : begin + PARAGRAPH] for begin in range(0, len(sentences), PARAGRAPH)]
    return "\n\n".join(map(" ".join, paragraphs))


def sentences_of(num_words: int) -> list[str]:
    """Return everyday sentences of so many words: those written by hand, then others, the same every time."""
    sentences, chance = list[str](), random.Random(35)
    more = Grammar.load(everyday_file("english"), _SLOTS)
    for sentence in itertools.chain(everyday_sentences(), (more.sentence(chance) for _ in itertools.count())):
        if num_words <= 0:
            break
        sentences.append(sentence)
        num_words -= len(words_of(sentence))
    return sentences


@asynccontextmanager
async def _running() -> AsyncIterator[tuple[SpeechClient, aiohttp.ClientSession]]:
    """Run a server and a gateway."""
    with tempfile.TemporaryDirectory() as folder:
        async with local_server() as target, SpeechClient(target) as client:
            with GatewayProcess(Path(folder) / "log", "--server", target) as gateway:
                timeout = aiohttp.ClientTimeout(total=1200)
                async with aiohttp.ClientSession(gateway.url, timeout=timeout, read_bufsize=1 << 22) as http:
                    await eventually(lambda: _status(http), 200)
                    yield client, http


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


def _tell_joints(path: Path, text: str, samples: Int16Array) -> None:
    places = json.loads(path.read_text())
    marks, joints = [Word(*word) for word in places["words"]], places["joints"]
    at_joints, within = list[Change](), list[Change]()
    for before, after in pairwise(marks):
        if text[before.text_end - 1] in ".!?":
            is_joint = any(before.text_end <= at <= after.text_start for at in joints)
            (at_joints if is_joint else within).append(_change(samples, before, after))
    _tell("joints of segments", at_joints)
    _tell("sentence ends within them", within)
    chance = np.random.default_rng(35)
    difference = _drawn(at_joints, chance) - _drawn(within, chance)
    for more, unit in zip(difference.T, ("dB", "semitones", "ms"), strict=True):
        low, high = np.quantile(more, (0.05, 0.95))
        print(f"more at joints: {low:.2f} to {high:.2f} {unit} (90 %)")


def _drawn(changes: Sequence[Change], chance: np.random.Generator) -> acoustics.FloatArray:
    """Return medians of what is drawn from the changes again and again, [draws, dB and semitones and ms]."""
    sizes = np.abs(np.array(changes, float))
    medians: acoustics.FloatArray = np.nanmedian(sizes[chance.integers(0, len(sizes), (1000, len(sizes)))], 1)
    return medians


def _for_recognizers(samples: Int16Array) -> Int16Array:
    heard: Int16Array = soxr.resample(samples, RATE_HZ, SAMPLE_RATE_HZ).astype(np.int16)
    return heard


def _change(samples: Int16Array, before: Word, after: Word) -> Change:
    """Return dB, semitones and the pause in ms from one word to the next.

    The pause is looked for in the audio: within a segment marks are off by 70 ms on average, at its beginning by 10, so
    windows of 500 ms by marks would hold more silence here than there.
    """
    first = before.start_ms // BLOCK_MS
    size = BLOCK_MS * RATE_HZ // 1000
    blocks = samples[first * size : (after.start_ms + MARKS_OFF_MS) // BLOCK_MS * size]
    is_loud = (blocks[: len(blocks) // size * size].reshape(-1, size).astype(float) ** 2).mean(1) > LOUD**2
    runs = [(is_silent, len(list(run))) for is_silent, run in itertools.groupby(~is_loud)]
    ends = list(itertools.accumulate(length for _, length in runs))
    length, until = max((length, until) for (is_silent, length), until in zip(runs, ends, strict=True) if is_silent)
    end, begin = (first + until - length) * size, (first + until) * size
    side = SIDE_MS * RATE_HZ // 1000
    levels, pitches = [], []
    for part in (samples[max(0, end - side) : end], samples[begin : begin + side]):
        levels.append(10 * np.log10(np.mean(part.astype(float) ** 2)))
        pitches.append(acoustics.median_pitch_hz(_for_recognizers(part)))
    return levels[1] - levels[0], 12 * float(np.log2(pitches[1] / pitches[0])), length * BLOCK_MS


def _tell(name: str, changes: Sequence[Change]) -> None:
    level, pitch, pause = (np.nanmedian(np.abs(each)) for each in zip(*changes, strict=True))
    print(f"{len(changes)} {name}: level {level:.2f} dB, pitch {pitch:.2f} semitones, pause {pause:.0f} ms (medians)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--voice", default="linden")
    parser.add_argument("--words", type=int, default=400)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--recognizer", choices=_RECOGNIZERS, default="pocketsphinx")
    parser.add_argument("--keep", type=Path, help="folder for the speech; what is there is only heard")
    parser.add_argument("--speak-only", action="store_true", help="hear nothing yet")
    args = parser.parse_args()
    sentences = sentences_of(args.words)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(speak(args.keep or Path(folder), args.voice, sentences, args.parts))
        if not args.speak_only:
            hear(args.keep or Path(folder), args.voice, sentences, args.parts, _RECOGNIZERS[args.recognizer]())


if __name__ == "__main__":
    main()
