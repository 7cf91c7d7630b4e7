"""How far times marks are off, as a table: `python -m tests.measure.mark_error` (needs pocketsphinx).

A server with the built-in voice and the built-in cloning checkpoint speaks held-out sentences in both layouts, once
with each kind of marks. pocketsphinx aligns the words with the audio, and what it finds is taken for true (it is exact
to about 30 ms). Sentences that it cannot align are left out.
"""

import argparse
import asyncio
import re
import tempfile
from collections import defaultdict
from pathlib import Path

import grpc
import numpy as np

from sonorant.client import SpeechClient, synthesis_config
from sonorant.service.audio.pcm import Samples
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.speak_pb2 import SpeakConfig, SpeakRequest
from sonorant.tts.v1.synthesis_pb2 import Mark, SynthesisConfig, TimestampMode
from sonorant.tts.v1.text_to_speech_service_pb2_grpc import TextToSpeechServiceStub
from tests.e2e.server_process import ServerProcess
from tests.spoken_words import RATE_HZ, Span, true_spans, words

HELD_OUT = Path("engine/training/sonorant/training/evaluation/held_out.tsv")
REFERENCE = "The weather is fine today, so we are going to the park."
VOICES = ("linden", "wren", "clone of linden", "clone of wren", "clone of linden, by its sound alone")
MODES = {"words": TimestampMode.TIMESTAMP_MODE_WORD, "progress": TimestampMode.TIMESTAMP_MODE_PROGRESS}

Case = tuple[str, str, str]  # voice, layout, mode


def sentences(count: int) -> list[str]:
    """Without digits, which the truth does not know how to read."""
    lines = [line.split("\t") for line in HELD_OUT.read_text().splitlines()]
    return [text for kind, text in lines if kind == "everyday" and not re.search(r"\d", text)][:count]


async def spoken(
    stub: TextToSpeechServiceStub, text: str, synthesis: SynthesisConfig, mode: TimestampMode
) -> tuple[Samples, list[Mark]]:
    """As Speak sends it, each piece as soon as it is made, when the least is known of what follows.

    Raises AssertionError for a mark that comes behind its audio.
    """
    config = SpeakConfig(synthesis=synthesis, timestamps=mode, max_lead_ms=0)
    requests = [SpeakRequest(config=config), SpeakRequest(text=text)]
    audio, marks, num_samples = bytearray(), [], 0
    call = stub.Speak(iter(requests))
    async for response in call:
        if response.HasField("marks"):
            assert all(mark.start_ms >= num_samples * 1000 // RATE_HZ - 1 for mark in response.marks.marks)
            marks += response.marks.marks
        elif response.HasField("audio"):
            chunk: AudioChunk = response.audio
            audio += chunk.data
            num_samples += chunk.num_samples
    return np.frombuffer(bytes(audio), np.int16), marks


async def voice_configs(client: SpeechClient) -> dict[str, SynthesisConfig]:
    recordings = {}
    for name in ("linden", "wren"):
        audio = synthesis_config(voice=name, seed=3, encoding="wav")
        recordings[name] = (await client.synthesize(REFERENCE, audio)).audio
    return {
        "linden": synthesis_config(voice="linden"),
        "wren": synthesis_config(voice="wren"),
        "clone of linden": synthesis_config(reference=recordings["linden"], transcript=REFERENCE),
        "clone of wren": synthesis_config(reference=recordings["wren"], transcript=REFERENCE),
        "clone of linden, by its sound alone": synthesis_config(reference=recordings["linden"]),
    }


def told_spans(text: str, marks: list[Mark]) -> list[Span] | None:
    """Of the same words as the truth; None for what is written otherwise than in words with spaces."""
    told = [(mark.start_ms, mark.end_ms) for mark in marks for _ in words(mark.text)]
    return told if len(told) == len(words(text)) else None


async def measure(
    address: str, num_sentences: int, voices: list[str], modes: list[str]
) -> dict[Case, list[tuple[Span, Span]]]:
    """The spans that were told and the true ones, of every word that both know."""
    found: dict[Case, list[tuple[Span, Span]]] = defaultdict(list)
    async with SpeechClient(address) as client, grpc.aio.insecure_channel(address) as channel:
        stub = TextToSpeechServiceStub(channel)
        configs = await voice_configs(client)
        for voice in voices:
            for layout in ("streaming", "whole text"):
                for mode in modes:
                    for seed, text in enumerate(sentences(num_sentences)):
                        config = SynthesisConfig()
                        config.CopyFrom(configs[voice])
                        config.sampling.seed = seed
                        config.non_streaming_mode = layout == "whole text"
                        samples, marks = await spoken(stub, text, config, MODES[mode])
                        true, told = true_spans(text, samples), told_spans(text, marks)
                        if true is not None and told is not None:
                            found[voice, layout, mode] += zip(told, true, strict=True)
    return found


def row(name: str, spans: list[tuple[Span, Span]]) -> str:
    cells = []
    for edge in (0, 1):
        errors = [abs(told[edge] - true[edge]) for told, true in spans]
        cells.append(f"{np.mean(errors):.0f} / {np.median(errors):.0f} / {np.percentile(errors, 95):.0f}")
    return f"| {name} | {len(spans)} | {cells[0]} | {cells[1]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--voice", action="append", choices=VOICES, help="of the table; default: all")
    parser.add_argument("--mode", action="append", choices=MODES, help="of the marks; default: all")
    parser.add_argument("--server", help="one that serves both checkpoints; default: one of its own")
    args = parser.parse_args()
    voices, modes = args.voice or list(VOICES), args.mode or list(MODES)
    if args.server:
        found = asyncio.run(measure(args.server, args.sentences, voices, modes))
    else:
        with tempfile.TemporaryDirectory() as folder:
            models = ("--model", "builtin_voice", "--model", "builtin_base", "--num-slots", "4")
            with ServerProcess(Path(folder) / "log", *models) as server:
                found = asyncio.run(measure(server.address, args.sentences, voices, modes))
    print("| voice, layout, marks | words | starts: mean / p50 / p95 ms | ends: mean / p50 / p95 ms |")
    print("|---|---|---|---|")
    for (voice, layout, mode), spans in found.items():
        print(row(f"{voice}, {layout}, {mode}", spans))


if __name__ == "__main__":
    main()
