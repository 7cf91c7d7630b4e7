"""The streams that run with the workers of one pair. Records from the workers name a stream by the id of its run."""

import asyncio
import time
from collections.abc import Iterator, Sequence

from sonorant.engine.ipc.messages import (
    EndStream,
    FirstChunk,
    PcmBatch,
    PcmRecord,
    SilentStream,
    TextPositions,
)
from sonorant.engine.serving.keeping import KeptStream, Send
from sonorant.engine.serving.placement import Placement
from sonorant.engine.serving.stream import EngineStream
from sonorant.engine.types import FinishReason, PcmChunk, StreamBudget


class Runs:
    def __init__(self, send: Send, ids: Iterator[int]) -> None:
        """`ids`: those of all engines of this process, since a stream may move between them."""
        self._send = send
        self._ids = ids
        self._running: dict[int, KeptStream] = {}
        self._spoken: asyncio.Future[bool] | None = None

    def begin(self, stream: KeptStream) -> None:
        run_id = next(self._ids)
        self._running[run_id] = stream
        stream.begin(run_id, time.monotonic(), self._send)

    def abandon(self) -> None:
        """Forget all runs, because the workers are gone."""
        self._running.clear()

    def deliver(self, records: Sequence[PcmRecord], placement: Placement) -> None:
        """Pass records from the workers on to their streams, and report to the placement who was heard or ended."""
        now_s = time.monotonic()
        budgets: dict[int, StreamBudget] = {}  # by run id, of streams whose first chunk is in the next batch
        for record in records:
            match record:
                case FirstChunk(run_id):
                    budgets[run_id] = record.budget(now_s)
                case PcmBatch():
                    placement.verdicts.acquit(self._deliver_batch(record, budgets))
                case TextPositions(run_ids, frame_indices, positions):
                    for run_id, frame, position in zip(
                        run_ids.tolist(), frame_indices.tolist(), positions.tolist(), strict=True
                    ):
                        stream = self._running[run_id]
                        assert isinstance(stream, EngineStream), "only streams with a talker have text positions"
                        assert stream.text_times is not None, "it has asked for them"
                        stream.text_times.add_position(frame, position)
                case SilentStream(run_id, num_frames):
                    self._running[run_id].on_silence(num_frames)
                case EndStream(run_id, end):
                    ended = self._running.pop(run_id)
                    if end.reason is FinishReason.YIELDED:
                        placement.on_yielded(ended)
                    elif not ended.has_another_run(end):
                        placement.end(ended, end)
                    self.tell_if_idle()

    def _deliver_batch(self, batch: PcmBatch, budgets: dict[int, StreamBudget]) -> Sequence[KeptStream]:
        streams = [self._running[run_id] for run_id in batch.stream_ids.tolist()]
        rows = zip(streams, batch.first_frames.tolist(), batch.samples, batch.codes, strict=True)
        for stream, first_frame, samples, codes in rows:
            budget = budgets.pop(stream.run_id, None)  # of the run, of which only a stream's first one counts
            if stream.was_heard:
                budget = None
            stream.deliver(PcmChunk(first_frame, batch.num_frames, samples, codes, budget))
        if self._spoken is not None and not all(stream.is_stored for stream in streams):
            self._tell_spoken(True)
        return streams

    # Whether the workers can speak

    async def has_spoken(self) -> bool:
        """Wait for audio of the streams that run here; return False if they end or the workers go down before any."""
        if not self._talks:
            return False
        self._spoken = asyncio.get_running_loop().create_future()
        return await self._spoken

    def tell_if_idle(self) -> None:
        if not self._talks:
            self._tell_spoken(False)

    @property
    def _talks(self) -> bool:
        return not all(stream.is_stored for stream in self._running.values())

    def _tell_spoken(self, has_spoken: bool) -> None:
        if self._spoken is not None and not self._spoken.done():
            self._spoken.set_result(has_spoken)
