"""What each stage of the audio path costs per 80 ms chunk, as a table: `python -m tests.measure.audio_cost`."""

import time
from collections.abc import Callable

import numpy as np

from sonorant.service.audio import g711
from sonorant.service.audio.gain import amplify
from sonorant.service.audio.opus import OpusEncoder
from sonorant.service.audio.resample import Resampler
from sonorant.service.audio.stretch import Stretcher
from sonorant.service.audio.writer import AudioSpec, AudioWriter
from sonorant.tts.v1 import audio_pb2
from tests.service.sounds import Samples, noise, voiced

CHUNK = 1920
NUM_CHUNKS = 500


def opus(rate_hz: int) -> Callable[[Samples], object]:
    encoder = OpusEncoder(rate_hz, 20, 32_000)
    return lambda chunk: [encoder.encode(packet) for packet in np.split(chunk, 4)]


def main() -> None:
    sound = voiced(140, CHUNK * NUM_CHUNKS) // 2 + noise(CHUNK * NUM_CHUNKS, peak=300)
    at_8k, at_48k = sound[::3], np.repeat(sound, 2)
    stages: list[tuple[str, Samples, Callable[[Samples], object]]] = [
        (
            "as the engine made it: 24 kHz PCM_S16LE",
            sound,
            AudioWriter(AudioSpec(_encoding("PCM_S16LE"), 24_000, 80)).push,
        ),
        ("the same in frames of 20 ms", sound, AudioWriter(AudioSpec(_encoding("PCM_S16LE"), 24_000, 20)).push),
        ("24 to 8 kHz", sound, Resampler(24_000, 8_000).push),
        ("24 to 16 kHz", sound, Resampler(24_000, 16_000).push),
        ("24 to 48 kHz", sound, Resampler(24_000, 48_000).push),
        ("speed 0.5", sound, Stretcher(0.5, 24_000).push),
        ("speed 1.25", sound, Stretcher(1.25, 24_000).push),
        ("speed 2", sound, Stretcher(2.0, 24_000).push),
        ("gain down", sound, lambda chunk: amplify(chunk, -6.0)),
        ("gain up", sound, lambda chunk: amplify(chunk, 6.0)),
        ("mu-law of 8 kHz", at_8k, g711.mulaw),
        ("Opus of 8 kHz", at_8k, opus(8_000)),
        ("Opus of 24 kHz", sound, opus(24_000)),
        ("Opus of 48 kHz", at_48k, opus(48_000)),
        (
            "telephone: 8 kHz mu-law in frames of 20 ms",
            sound,
            AudioWriter(AudioSpec(_encoding("MULAW"), 8_000, 20)).push,
        ),
        ("Ogg Opus of 24 kHz", sound, AudioWriter(AudioSpec(_encoding("OGG_OPUS"), 24_000, 80, 32_000)).push),
    ]
    print("| stage | CPU us per 80 ms chunk | real-time streams per core |\n|---|---|---|")
    for name, samples, push in stages:
        cost_s = cost_per_chunk_s(np.split(samples, NUM_CHUNKS), push)
        print(f"| {name} | {cost_s * 1e6:.0f} | {0.08 / cost_s:,.0f} |")


def cost_per_chunk_s(chunks: list[Samples], push: Callable[[Samples], object]) -> float:
    """The median, in time of this thread, so that other programs do not count."""
    costs_s = []
    for chunk in chunks:
        start_s = time.thread_time()
        push(chunk)
        costs_s.append(time.thread_time() - start_s)
    return float(np.median(costs_s))


def _encoding(name: str) -> audio_pb2.AudioEncoding:
    return audio_pb2.AudioEncoding.Value(f"AUDIO_ENCODING_{name}")


if __name__ == "__main__":
    main()
