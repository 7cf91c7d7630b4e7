"""The interfaces between a stream and its keeper, the code that decides which workers run it.

A stream outlives its workers. Each time it is opened with workers is a *run*, with an id of its own.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.errors import InvalidSynthesis
from sonorant.engine.ipc.messages import Command
from sonorant.engine.types import FinishReason, Int16Array, PcmChunk, StreamEnd

Send: TypeAlias = Callable[[Command], None]


class KeptStream(Protocol):
    """A stream, as its keeper sees it."""

    run_id: int  # the workers' id for it; 0 while it does not run

    @property
    def stream_id(self) -> int: ...

    @property
    def outlives_workers(self) -> bool: ...

    @property
    def is_stored(self) -> bool:
        """Whether its frames are stored codes, so that it needs no slot in the talker."""

    @property
    def caller(self) -> int:
        """Whose it is; 0 is nobody in particular."""

    @property
    def is_background(self) -> bool:
        """Whether nobody listens to it yet, so that it gives way to others."""

    @property
    def was_heard(self) -> bool:
        """Whether workers of this process have delivered any of its audio."""

    @property
    def is_runnable(self) -> bool:
        """Whether it has something to do next, and credit for it."""

    def begin(self, run_id: int, now_s: float, send: Send) -> None:
        """Begin a run: send the workers the records that open the stream after all frames delivered so far."""

    def deliver(self, chunk: PcmChunk) -> None:
        """Take audio from the workers."""

    def on_silence(self, num_frames: int) -> None:
        """React to so many silent frames in a row."""

    def has_another_run(self, end: StreamEnd) -> bool:
        """Whether another run follows the one that has just ended; then the stream asks the keeper for it."""

    def stop(self) -> bool:
        """Note that the run is over: its workers are gone, or gave its slot away. True if the stream was cancelled."""

    def finish(self, end: StreamEnd) -> None:
        """Note that the stream is over, and pass the end to its caller."""


class Keeper(Protocol):
    """What a stream asks of its keeper."""

    def run(self, stream: KeptStream) -> None:
        """Begin a run of a stream that can go on and does not run, now or as soon as workers have room."""

    def end(self, stream: KeptStream, end: StreamEnd) -> None:
        """End a stream that does not run."""


def local_end(reason: FinishReason, detail: str = "") -> StreamEnd:
    """The end of a stream that does not run with any workers."""
    return StreamEnd(reason, num_frames=0, queue_s=0.0, generation_s=0.0, detail=detail)


def check_codes(field: str, codes: Int16Array, checkpoint: Checkpoint) -> None:
    """Raise InvalidSynthesis unless these can be frames of this checkpoint's codec."""
    num_codebooks, codebook_size = checkpoint.talker.num_codebooks, checkpoint.code_predictor.vocab_size
    if codes.dtype != np.int16 or codes.ndim != 2 or codes.shape[1] != num_codebooks:
        raise InvalidSynthesis(
            field,
            f"{field} are {codes.dtype} {codes.shape}, {checkpoint.name} needs int16 (frames, {num_codebooks}); "
            "pass the codes that came with the audio",
        )
    if len(codes) and (codes.min() < 0 or codes.max() >= codebook_size):
        raise InvalidSynthesis(
            field,
            f"{field} run from {codes.min()} to {codes.max()}, a code is 0 to {codebook_size - 1}; pass the codes that "
            "came with the audio",
        )
