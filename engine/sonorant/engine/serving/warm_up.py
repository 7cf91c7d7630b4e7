"""The warm-up: one utterance that nobody hears. After it the engine is known to speak, and is warm."""

import time
from dataclasses import dataclass, replace

import numpy as np

from sonorant.engine.errors import EngineError
from sonorant.engine.serving.engine import Engine
from sonorant.engine.types import PcmChunk, SynthesisParams

TEXT = "This is a test."
MAX_FRAMES = 25


@dataclass(frozen=True, slots=True)
class WarmUp:
    num_frames: int
    first_audio_s: float
    total_s: float


async def warm_up(engine: Engine) -> WarmUp:
    """Have the engine speak a test sentence. Raises EngineError if there is no audio."""
    start_s, first_audio_s, num_frames = time.monotonic(), 0.0, 0
    info = engine.info
    sampling = replace(info.default_sampling, min_frames=1, max_frames=MAX_FRAMES)
    params = SynthesisParams(
        sampling,
        speaker=info.speakers[0] if info.speakers else None,
        x_vector=np.zeros(info.hidden_size, np.float32) if info.task == "base" else None,
    )
    async with engine.open(params, outlives_workers=False) as stream:
        stream.push_text(TEXT)
        stream.end_text()
        while isinstance(event := await stream.next_event(), PcmChunk):
            first_audio_s = first_audio_s or time.monotonic() - start_s
            num_frames += event.num_frames
            stream.grant(event.num_frames)
    if num_frames == 0:
        raise EngineError(f"it made no audio ({event.reason.name}) {event.detail}")
    return WarmUp(num_frames, first_audio_s, time.monotonic() - start_s)
