"""The warm-up: one utterance that nobody hears. After it the engine is known to speak, and is warm.

A checkpoint that clones does all that a clone needs: a recording is decoded and encoded, and goes into the prompt.
"""

import io
import time
import wave
from dataclasses import dataclass, replace

import numpy as np

from sonorant.engine.errors import EngineError
from sonorant.engine.serving.engine import Engine
from sonorant.engine.types import PcmChunk, StreamEnd, SynthesisParams

TEXT = "This is a test."
MAX_FRAMES = 25
MOST_S = 0.2  # a slow machine has then shown that it speaks
RECORDING_S, RECORDING_HZ = 5, 24_000
TRANSCRIPT = "Nobody said this, and nobody will hear how it sounds."


@dataclass(frozen=True, slots=True)
class WarmUp:
    num_frames: int
    first_audio_s: float
    total_s: float


async def warm_up(engine: Engine) -> WarmUp:
    """Have the engine speak a test sentence, or as much of it as it makes in MOST_S.

    Raises EngineError if there is no audio.
    """
    start_s, first_audio_s, num_frames = time.monotonic(), 0.0, 0
    info = engine.info
    sampling = replace(info.default_sampling, min_frames=1, max_frames=MAX_FRAMES)
    params = SynthesisParams(sampling, speaker=info.speakers[0] if info.speakers else None)
    if info.task == "base":
        seconds = min(RECORDING_S, info.max_context / info.frame_rate_hz / 4)
        voice = await engine.encode_reference(_noise(seconds), with_codes=True)
        params = replace(params, x_vector=voice.x_vector, reference_codes=voice.codes, reference_text=TRANSCRIPT)
    async with engine.open(params, outlives_workers=False) as stream:
        stream.push_text(TEXT)
        stream.end_text()
        is_over = False
        while not is_over and isinstance(event := await stream.next_event(), PcmChunk):
            first_audio_s = first_audio_s or time.monotonic() - start_s
            num_frames += event.num_frames
            stream.grant(event.num_frames)
            is_over = time.monotonic() - start_s > MOST_S
    if isinstance(event, StreamEnd) and num_frames == 0:
        raise EngineError(f"it made no audio ({event.reason.name}) {event.detail}")
    return WarmUp(num_frames, first_audio_s, time.monotonic() - start_s)


def _noise(seconds: float) -> bytes:
    """Return a WAV file."""
    samples = np.random.default_rng(0).integers(-3000, 3000, round(seconds * RECORDING_HZ)).astype("<i2")
    with io.BytesIO() as file:
        with wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(RECORDING_HZ)
            sound.writeframes(samples.tobytes())
        return file.getvalue()
