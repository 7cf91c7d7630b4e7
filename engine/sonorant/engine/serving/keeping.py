"""What streams and whoever keeps them ask of each other. A stream outlives the workers that it runs with."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.errors import InvalidSynthesis
from sonorant.engine.ipc.messages import Command
from sonorant.engine.types import FinishReason, Int16Array, PcmChunk, StreamBudget, StreamEnd

Send: TypeAlias = Callable[[Command], None]


class KeptStream(Protocol):
    """A stream, as its keeper sees it."""

    run_id: int  # what the workers know it by; 0: it does not run

    @property
    def stream_id(self) -> int: ...

    @property
    def outlives_workers(self) -> bool: ...

    @property
    def is_stored(self) -> bool:
        """It is of stored codes and takes no place in the talker."""

    @property
    def was_heard(self) -> bool:
        """Some of its audio has come out of workers of ours."""

    @property
    def can_go_on(self) -> bool:
        """With something to do next, and credit."""

    def begin(self, run_id: int, now_s: float, send: Send) -> None:
        """It runs from now on with the workers that `send` reaches: it opens itself behind all that was delivered."""

    def deliver(self, chunk: PcmChunk, budget: StreamBudget | None) -> None:
        """Audio from the workers; `budget` tells of the first of this run."""

    def on_silence(self, num_frames: int) -> None:
        """It has been silent for so many frames."""

    def goes_on(self, end: StreamEnd) -> bool:
        """The workers are done with it, and there is another run to come; it asks for that itself."""

    def stop(self) -> bool:
        """It runs no more: its workers are gone, or have given its slot away. True if it has been cancelled."""

    def finish(self, end: StreamEnd) -> None:
        """It is over."""


class Keeper(Protocol):
    """What a stream asks of whoever has it run."""

    def run(self, stream: KeptStream) -> None:
        """It has something to go on with and does not run: open it with workers, now or as soon as there are any."""

    def end(self, stream: KeptStream, end: StreamEnd) -> None:
        """It is over, and does not run."""


def local_end(reason: FinishReason, detail: str = "") -> StreamEnd:
    """Of a stream that no worker had when it ended."""
    return StreamEnd(reason, num_frames=0, queue_s=0.0, generation_s=0.0, detail=detail)


def check_codes(field: str, codes: Int16Array, checkpoint: Checkpoint) -> None:
    """Raise InvalidSynthesis unless these can be frames of this checkpoint's codec."""
    num_codebooks, codebook_size = checkpoint.talker.num_codebooks, checkpoint.code_predictor.vocab_size
    if codes.dtype != np.int16 or codes.ndim != 2 or codes.shape[1] != num_codebooks:
        raise InvalidSynthesis(
            field,
            f"{field} are {codes.dtype} {codes.shape}, {checkpoint.name} needs int16 (frames, {num_codebooks}); "
            "give those that came with the audio",
        )
    if len(codes) and (codes.min() < 0 or codes.max() >= codebook_size):
        raise InvalidSynthesis(
            field,
            f"{field} run from {codes.min()} to {codes.max()}, a code is 0 to {codebook_size - 1}; give those that "
            "came with the audio",
        )
