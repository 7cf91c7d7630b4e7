"""A stream and its keeper, the code that decides which workers run it, as each of them sees the other.

A stream outlives its workers. Each time it is opened with workers is a *run*, with an id of its own.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self, TypeAlias

from sonorant.engine.ipc.messages import Command
from sonorant.engine.types import FinishReason, PcmChunk, StreamEnd

Send: TypeAlias = Callable[[Command], None]


class Keeper(Protocol):
    """What a stream asks of its keeper."""

    def run(self, stream: "KeptStream") -> None:
        """Begin a run of a stream that can go on and does not run, now or as soon as workers have room."""

    def end(self, stream: "KeptStream", end: StreamEnd) -> None:
        """End a stream that does not run."""


class KeptStream:
    """A stream, as its keeper sees it, and what all streams have in common. As an async context manager, it cancels a
    stream that has not ended when it is left, without waiting."""

    outlives_workers = True
    is_stored = False  # whether its frames are stored codes, so that it needs no slot in the talker
    is_background = False  # whether nobody listens to it yet, so that it gives way to others
    caller = 0  # whose it is; 0 is nobody in particular

    def __init__(self, stream_id: int, keeper: Keeper) -> None:
        self.stream_id = stream_id
        self.run_id = 0  # the workers' id for it; 0 while it does not run
        self.ended = False  # all is made; the last events may still wait here to be taken
        self.was_heard = False  # whether workers of this process have delivered any of its audio
        self._send: Send  # to the workers that run it
        self._keeper = keeper
        self._cancelled = False
        self._events: asyncio.Queue[PcmChunk | StreamEnd] = asyncio.Queue()  # bounded by credit
        # Waits for the next chunk or for the end. The end comes exactly once; do not call this after it.
        self.next_event: Callable[[], Coroutine[Any, Any, PcmChunk | StreamEnd]] = self._events.get

    # For callers

    def cancel(self) -> None:
        """Stop: no more audio comes, only the end. Does nothing after the end or a second time."""
        if self._cancelled or self.ended:
            return
        self._cancelled = True
        while not self._events.empty():
            self._events.get_nowait()
        if self.run_id:
            self._cancel_run()
        else:
            self._keeper.end(self, local_end(FinishReason.CANCELLED))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    # For the keeper

    @property
    def is_runnable(self) -> bool:
        """Whether it has something to do next, and credit for it."""
        raise NotImplementedError

    def begin(self, run_id: int, now_s: float, send: Send) -> None:
        """Begin a run: send the workers the records that open the stream after all frames delivered so far."""
        raise NotImplementedError

    def deliver(self, chunk: PcmChunk) -> None:
        """Take audio from the workers."""
        raise NotImplementedError

    def on_silence(self, num_frames: int) -> None:
        """React to so many silent frames in a row."""

    def has_another_run(self, end: StreamEnd) -> bool:
        """Whether another run follows the one that has just ended; then the stream asks the keeper for it."""
        return False

    def stop(self) -> bool:
        """Note that the run is over: its workers are gone, or gave its slot away. True if the stream was cancelled."""
        self.run_id = 0
        return self._cancelled

    def finish(self, end: StreamEnd) -> None:
        """Note that the stream is over, and pass the end to its caller."""
        self.run_id = 0
        self.ended = True
        self._events.put_nowait(end)

    def _cancel_run(self) -> None:
        """Tell the workers that run it."""
        raise NotImplementedError


def local_end(reason: FinishReason, detail: str = "") -> StreamEnd:
    """The end of a stream that does not run with any workers."""
    return StreamEnd(reason, num_frames=0, queue_s=0.0, generation_s=0.0, detail=detail)
