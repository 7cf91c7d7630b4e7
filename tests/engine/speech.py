"""Small verbs on engine streams, for tests."""

import asyncio
import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sonorant.engine import Engine, EngineStream, PcmChunk, StreamEnd, SynthesisParams
from sonorant.engine.types import Int16Array


def speech(engine: Engine, *, non_streaming_mode: bool = False, **sampling: Any) -> SynthesisParams:
    """Parameters for the checkpoint's first speaker."""
    return SynthesisParams(
        dataclasses.replace(engine.info.default_sampling, **sampling),
        speaker=engine.info.speakers[0],
        non_streaming_mode=non_streaming_mode,
    )


@dataclass
class Heard:
    """Everything that came from a stream, checked for order."""

    end: StreamEnd
    chunks: list[PcmChunk] = field(default_factory=list)

    @property
    def num_frames(self) -> int:
        return sum(chunk.num_frames for chunk in self.chunks)

    @property
    def samples(self) -> Int16Array:
        return np.concatenate([chunk.samples for chunk in self.chunks])


def assert_same_speech(one: Int16Array, other: Int16Array) -> None:
    """Check that samples agree to 1e-4 of full scale: in another batch the decoder's sums may have another order."""
    assert len(one) == len(other)
    assert np.abs(one.astype(np.int32) - other).max() <= 3


async def listen(stream: EngineStream, frame_samples: int, next_frame: int = 0) -> Heard:
    """Take everything from `next_frame` to the end, granting what was taken."""
    chunks: list[PcmChunk] = []
    while isinstance(event := await asyncio.wait_for(stream.next_event(), 60), PcmChunk):
        assert event.first_frame == next_frame
        assert len(event.samples) == event.num_frames * frame_samples
        next_frame += event.num_frames
        stream.grant(event.num_frames)
        chunks.append(event)
    return Heard(event, chunks)


async def say(engine: Engine, text: str, params: SynthesisParams | None = None) -> Heard:
    async with engine.open(params or speech(engine)) as stream:
        stream.push_text(text)
        stream.end_text()
        return await listen(stream, engine.info.frame_samples)


async def until_idle(engine: Engine) -> None:
    """Check that everything that was opened has ended, in the workers, too."""
    while engine.num_streams:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
