"""Streams that decode stored codes: all frames are known, so only Code2Wav works, and the talker makes nothing.

A segment was spoken in one piece. Code2Wav starts each segment with a fresh state, so each is a run of its own; the
stream keeps its place for all of them. Its records travel through the talker like all others, which passes them on.
"""

import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from sonorant.engine.ipc.messages import BeginStream, EndStream, FlushStream, FrameBatch
from sonorant.engine.serving.keeping import Keeper, KeptStream, Send, local_end
from sonorant.engine.serving.stream import StreamCredit
from sonorant.engine.types import FinishReason, Int16Array, PcmChunk, StreamEnd


class StoredStream(KeptStream):
    """No chunk has frames of two segments; its `first_frame` counts within its segment."""

    is_stored = True

    def __init__(
        self,
        stream_id: int,
        keeper: Keeper,
        segments: Sequence[Int16Array],
        past_codes: Int16Array | None,
        credit_frames: int,
    ) -> None:
        """`segments` [frames, codebooks]: at least one, each with at least one frame. `past_codes` are decoded before
        each segment for the state they leave, and not heard."""
        super().__init__(stream_id, keeper)
        self._segments = deque(segments)  # not yet decoded; the first is being decoded
        self._past_codes = past_codes
        self._credit = StreamCredit(0, credit_frames)  # counted over all segments
        self._frames_before = 0  # of the segments that are done
        self._num_delivered = 0  # of the present segment
        self._num_sent = 0  # of the present segment, to the workers that run it
        self._end_sent = False

    # For callers

    def grant(self, num_frames: int) -> None:
        """Allow so many more frames to be decoded."""
        if not self._credit.grant(num_frames) or self._cancelled or self.ended:
            return
        if self.run_id:
            self._send_more()
        elif self.is_runnable:
            self._keeper.run(self)

    # For the keeper

    @property
    def is_runnable(self) -> bool:
        if self._cancelled or self.ended:
            return False
        is_decoded = self._num_delivered == len(self._segments[0])  # then only the segment's end was lost
        return is_decoded or self._frames_before + self._num_delivered < self._credit.told

    def begin(self, run_id: int, now_s: float, send: Send) -> None:
        self.run_id, self._send = run_id, send
        self._num_sent, self._end_sent = self._num_delivered, False
        heard = self._segments[0][: self._num_delivered]
        past = [codes for codes in (self._past_codes, heard) if codes is not None and len(codes)]
        opening = BeginStream(
            run_id,
            now_s,
            now_s,
            np.concatenate(past) if past else None,
            first_frame=self._num_delivered,
            is_stored=True,
        )
        send(opening)
        self._send_more()

    def deliver(self, chunk: PcmChunk) -> None:
        self._num_delivered += chunk.num_frames
        self.was_heard = True
        if not self._cancelled:
            self._events.put_nowait(chunk)

    def has_another_run(self, end: StreamEnd) -> bool:
        self.run_id = 0
        if self._cancelled or end.reason is not FinishReason.COMPLETED or len(self._segments) == 1:
            return False
        self._frames_before += len(self._segments.popleft())
        self._num_delivered = 0
        if self.is_runnable:
            self._keeper.run(self)
        return True

    def _cancel_run(self) -> None:
        if not self._end_sent:  # if it is sent, the workers have all frames and end the stream soon
            self._end_sent = True
            self._send(EndStream(self.run_id, local_end(FinishReason.CANCELLED)))

    # Frames on their way

    def _send_more(self) -> None:
        """Send frames as far as credit goes, and the segment's end after its last frame."""
        if self._end_sent:
            return
        codes, start = self._segments[0], self._num_sent
        stop = self._num_sent = min(len(codes), self._credit.told - self._frames_before)
        now_s = time.monotonic()
        if start < stop:
            indices = np.arange(start, stop, dtype=np.int32)
            ids = np.full(stop - start, self.run_id, np.int64)
            self._send(FrameBatch(ids, indices, codes[start:stop], now_s, now_s))
        if stop == len(codes):
            self._end_sent = True
            self._send(EndStream(self.run_id, StreamEnd(FinishReason.COMPLETED, len(codes), 0.0, 0.0)))
        else:
            self._send(FlushStream(self.run_id, is_blocked=True))
