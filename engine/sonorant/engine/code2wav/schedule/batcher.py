"""Decides which frames of which streams are decoded next. Pure: no torch, no channels; the clock is an argument.

One turn: pass each record from the talker to `on_record`, ask `next_batch` what to decode, have the runner decode it,
and pass the audio to `apply`. All rows of a batch have the same number of frames. While the runner decodes, records can
be passed on, and `urgent_batch` says what to decode beside that. A plan is a value. Each that has slots is applied
once, before the next of its kind is made: anything else raises RuntimeError and changes nothing.

* Chunks have a few sizes (`chunks.py`). The first audio waits for one frame only, and a stream that is ahead of its
  listener is decoded in large chunks, which cost less: 1, 4, 12, 12, ... frames if the talker is fast. A chunk that is
  not whole is due at once when the talker says that no more frames will come for now, and before the listener runs dry.
* Where the sizes are few, as on CUDA, a call costs about the same for one stream as for several. So a whole chunk waits
  a little for those of other streams, and goes with the first call of its size.
* There, a call also holds no more than fits into a step of the talker, so that first audio need not wait for longer.
* A smaller chunk is of the largest size that its frames fill, and the rest waits or makes the next chunk. At the end of
  a stream, whose state nothing needs any more, the rest is padded to a size, and the audio of the padding cut off.
* Listeners are assumed to play without a pause from the first chunk on. A stream can wait for one more frame if its
  lead is longer than what the talker and the decoder need for one, and a reserve (`pace.py`). A listener has more to
  play if the utterance before this one is still heard. One sign of that is a stream without credit: its frames need not
  be decoded one by one when credit comes.
* The stream whose listener runs dry first goes first. A waiting stream keeps its place and a served one moves back, so
  none waits forever.
* A stream gets a slot as soon as it begins, if one is free: it is reset while the talker makes the first frame.
* Nobody listens to a background stream yet. Its chunks are as large as possible, and come when no other stream is due,
  or in the calls of others. An ended background stream goes first if another stream waits for its slot.
* A stream that stays silent for too long is reported once, so that the service may end it.
* The reference of a cloned voice is decoded for the state it leaves; its audio is not used. The state is kept, and a
  later stream in the same voice begins with a copy of it. When a stream goes on here after a restart, the frames that
  were already heard are decoded for their state as well. In both cases, only the last frames on which the state depends
  are decoded.

The slots are not those of the talker: a stream may be decoded here long after its talker slot went to another stream.
Stored codes have slots of their own, so that no live stream waits for a stored one whose listener is slow.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from sonorant.engine.code2wav.schedule.chunks import ChunkSizes
from sonorant.engine.code2wav.schedule.context import DecoderContext
from sonorant.engine.code2wav.schedule.due import DueStreams
from sonorant.engine.code2wav.schedule.outgoing import Outgoing
from sonorant.engine.code2wav.schedule.pace import Pace
from sonorant.engine.code2wav.schedule.plan import NO_CODES, DecodePlan
from sonorant.engine.code2wav.schedule.references import KeptReferences
from sonorant.engine.code2wav.schedule.silence import silent_tail
from sonorant.engine.code2wav.schedule.slots import Slots
from sonorant.engine.code2wav.schedule.stream import NEVER_S, NO_SLOT, DecodedStream
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import (
    BeginStream,
    EndServer,
    EndStream,
    FirstChunk,
    FlushStream,
    FrameBatch,
    PcmRecord,
    SilentStream,
    TextPositions,
)
from sonorant.engine.ipc.server_ids import server_of
from sonorant.engine.types import FinishReason, Float32Array, Int16Array, StreamEnd
from sonorant.engine.under_way import UnderWay

# A whole chunk waits for this part of a frame for those of other streams. Waiting for longer saves few calls more.
GATHER = 0.25

Pairs: TypeAlias = Sequence[tuple[int, int]]
FrameStreamRecord: TypeAlias = BeginStream | FrameBatch | TextPositions | FlushStream | EndStream | EndServer


class Batcher:
    """Owns the undecoded frames of every stream, and the slots of one Code2Wav runner: first `num_slots` for live
    streams, then `stored_streams` for stored ones, then `kept_references` for the state after references."""

    def __init__(
        self,
        config: EngineConfig,
        num_slots: int,
        frame_s: float,
        context: DecoderContext,
        pass_sizes: Sequence[int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`pass_sizes`: the numbers of frames that a row may have in one pass of the network, ascending."""
        if num_slots < (live := config.talker.num_slots):
            raise ValueError(f"{num_slots} Code2Wav slots for {live} talker slots: a live stream could wait forever")
        self._sizes = ChunkSizes(config.code2wav.chunk_ramp, pass_sizes)
        self._pace = Pace(frame_s)
        self._bounds_calls = not self._sizes.is_any_size_a_pass
        self._max_rows = config.code2wav.max_decode_batch
        self._max_silent_frames = config.code2wav.runaway_silent_frames
        self._frame_s = frame_s
        self._context, self._clock = context, clock
        self._slots = Slots(num_slots, config.code2wav.stored_streams)
        first_kept = self._slots.count
        self._references = KeptReferences(range(first_kept, first_kept + config.code2wav.kept_references))
        self._copies: list[tuple[int, int]] = []  # for the next plan
        self._streams: dict[int, DecodedStream] = {}
        self._num_listeners = 0  # streams without background streams
        self._due = DueStreams(GATHER * frame_s if self._bounds_calls else 0.0, clock)
        self._with_reference: dict[int, DecodedStream] = {}  # streams that have a reference and no slot yet
        self._begun: dict[int, DecodedStream] = {}  # streams whose first frame has not come
        self._outgoing = Outgoing()
        self._ending_servers: list[EndServer] = []
        self._calls = UnderWay[DecodePlan, list[DecodedStream]](1)
        self._urgent_calls = UnderWay[DecodePlan, list[DecodedStream]](1)
        self.wait_s: float | None = None  # after a plan without slots: ask again after so long if no record came before

    @property
    def num_streams(self) -> int:
        return len(self._streams)

    def on_record(self, record: FrameStreamRecord) -> None:
        match record:
            case FrameBatch():
                self._on_frames(record)
            case BeginStream():
                self._on_begin(record)
            case TextPositions():
                self._outgoing.add_positions(record)
            case FlushStream(stream_id, is_blocked):
                stream = self._streams[stream_id]
                stream.is_flushed, stream.is_blocked = True, is_blocked
                self._file(stream)
            case EndStream():
                self._on_end(record)
            case EndServer():
                self._end_server(record)

    def _on_begin(self, record: BeginStream) -> None:
        if record.stream_id in self._streams:
            raise ValueError(f"stream {record.stream_id} began twice")
        chunk_frames = self._sizes.largest if record.is_background else self._sizes.wanted(0)
        stream = DecodedStream.begun(record, self._context.receptive_frames, chunk_frames, self._clock())
        self._streams[stream.stream_id] = self._begun[stream.stream_id] = stream
        self._num_listeners += not stream.is_background
        if stream.reference:
            self._with_reference[stream.stream_id] = stream
        self._file(stream)

    def _on_frames(self, batch: FrameBatch) -> None:
        times = (batch.began_s, batch.ended_s, self._clock())
        if batch.began_s < batch.ended_s:  # else the frames are stored ones
            self._pace.note_step(batch.ended_s - batch.began_s)
        for stream_id, index, codes in zip(
            batch.stream_ids.tolist(), batch.frame_indices.tolist(), batch.codes, strict=True
        ):
            stream = self._streams[stream_id]
            if stream.is_blocked:
                stream.unblock(times[-1], self._frame_s)
            if index != stream.num_received:
                raise ValueError(f"stream {stream_id} got frame {index} where frame {stream.num_received} was due")
            if index == stream.first_heard:
                stream.times += times
                del self._begun[stream_id]
            pending = stream.pending
            pending.append(codes)
            stream.num_received = index + 1
            if len(pending) == 1 or len(pending) == stream.chunk_frames or stream.is_flushed:
                stream.is_flushed = False
                self._file(stream)

    def _on_end(self, record: EndStream) -> None:
        stream = self._streams.get(record.stream_id)
        if stream is None:  # the stream ended before the talker had a slot for it
            self._outgoing.add(record)
            return
        stream.end = record
        wanted = record.end.reason in (FinishReason.COMPLETED, FinishReason.MAX_FRAMES, FinishReason.YIELDED)
        if not wanted or stream.num_received == stream.first_heard:
            stream.pending.clear()
        self._file(stream)
        self._finish_if_drained(stream)

    def _end_server(self, record: EndServer) -> None:
        """End what the talker does not know: streams of stored codes, and streams with frames still to be decoded."""
        for stream in [each for each in self._streams.values() if server_of(each.stream_id) == record.server]:
            num_frames = stream.num_received
            stream.end = EndStream(stream.stream_id, StreamEnd(FinishReason.CANCELLED, num_frames, 0.0, 0.0, ""))
            stream.pending.clear()
            self._file(stream)
            self._finish_if_drained(stream)
        self._ending_servers.append(record)
        self._pass_on_ended_servers()

    def _pass_on_ended_servers(self) -> None:
        """Pass EndServer on behind all that is sent of the server process's streams, of which some may be in a call."""
        for record in self._ending_servers[:]:
            if all(server_of(stream_id) != record.server for stream_id in self._streams):
                self._ending_servers.remove(record)
                self._outgoing.add(record)

    def next_batch(self) -> DecodePlan:
        """Return what to decode now. If the plan has slots, pass its result to `apply`, or it to `apply_unheard`."""
        self._calls.expect_room()
        now = self._clock()
        for stream in list(self._with_reference.values()):
            self._begin_behind_kept_reference(stream)
        latest_s = now + self._pace.margin_s
        new_slots = list[tuple[int, int]]()
        batch, num_frames, is_heard = self._choose(self._due.candidates(now, latest_s), new_slots)
        new_slots += self._slots_ahead()
        self.wait_s = None if batch else self._due.wait_s(now, latest_s)
        copies, self._copies = self._copies, []
        return self._plan(batch, num_frames, is_heard, copies, new_slots, is_urgent=False)

    def _choose(
        self, candidates: list[DecodedStream], new_slots: list[tuple[int, int]]
    ) -> tuple[list[DecodedStream], int, bool]:
        """Return the streams of the next call, how many frames of each, and whether these are heard: as the first
        candidate with a slot needs it. Slots that are given are added to `new_slots`."""
        batch: list[DecodedStream] = []
        num_frames, is_heard = 0, True  # the same for each stream of the batch
        if any(self._lacks_slot(stream) for stream in candidates):
            candidates.sort(key=lambda stream: not (stream.is_background and stream.end))
        sizes = list(map(self._size_of_next, candidates))
        max_rows: float = self._max_rows
        for stream, size in zip(candidates, sizes, strict=True):
            if len(batch) >= max_rows:
                break
            num_unheard = stream.num_unheard
            if batch and (size != num_frames or is_heard != (num_unheard <= 0)):
                continue
            if not batch and self._bounds_calls:
                max_rows = min(max_rows, self._pace.max_rows(size, self._num_waiting(size, candidates, sizes)))
            most_unheard = self._context.most_unheard(size, self._max_rows)
            if batch and num_unheard > 0 and (len(batch) + 1) * size > most_unheard:
                continue
            if not self._has_slot(stream, new_slots):
                continue
            batch.append(stream)
            num_frames, is_heard = size, num_unheard <= 0
        return batch, num_frames, is_heard

    def urgent_batch(self) -> DecodePlan:
        """Return what to decode while a call is under way: as many frames as a first chunk has, of streams whose
        listeners would run dry if they waited. If there are any, pass the result to `apply`, before or after that of
        the call under way.
        """
        self._urgent_calls.expect_room()
        size = self._sizes.wanted(0)
        new_slots = list[tuple[int, int]]()
        urgent = self._due.urgent(self._clock() + self._pace.urgent_s)
        fitting = [stream for stream in urgent if stream.num_unheard <= 0 and self._size_of_next(stream) >= size]
        batch = [stream for stream in fitting[: self._max_rows] if self._has_slot(stream, new_slots)]
        return self._plan(batch, size, True, [], new_slots + self._slots_ahead(), is_urgent=True)

    def _num_waiting(self, size: int, candidates: Sequence[DecodedStream], sizes: Sequence[int]) -> int:
        """How many streams wait for a call of this size; background streams count only while nobody listens."""
        waiting = [stream for stream, wanted in zip(candidates, sizes, strict=True) if wanted == size]
        return sum(not (stream.is_background and self._num_listeners) for stream in waiting)

    def _lacks_slot(self, stream: DecodedStream) -> bool:
        """Whether an interactive stream waits for a slot."""
        return stream.slot == NO_SLOT and not (stream.is_background or stream.is_stored or self._slots.has_free(stream))

    def _has_slot(self, stream: DecodedStream, new_slots: list[tuple[int, int]]) -> bool:
        """Whether the stream has a slot; if need be, it gets a free one, which is added to `new_slots`."""
        if stream.slot == NO_SLOT and self._slots.has_free(stream):
            new_slots.append((self._take_slot(stream), stream.num_skipped))
        return stream.slot != NO_SLOT  # else an ended stream will free one once it is drained

    def _plan(
        self,
        batch: list[DecodedStream],
        num_frames: int,
        is_heard: bool,
        copies: Pairs,
        new_slots: Pairs,
        is_urgent: bool,
    ) -> DecodePlan:
        batch.sort(key=lambda stream: min(len(stream.pending), num_frames), reverse=True)
        lengths = [min(len(stream.pending), num_frames) for stream in batch]
        frames = [c for stream, length in zip(batch, lengths, strict=True) for c in stream.take(length, num_frames)]
        for stream in batch:
            stream.is_decoding = True
            self._due.remove(stream)
        plan = DecodePlan(
            records=self._outgoing.take(),
            copies=copies,
            new_slots=new_slots,
            slots=[stream.slot for stream in batch],
            is_heard=is_heard,
            codes=np.concatenate(frames).reshape(len(batch), num_frames, -1) if batch else NO_CODES,
            stream_ids=[stream.stream_id for stream in batch],
            first_frames=[stream.first_pending for stream in batch],
            lengths=lengths,
            began_s=self._clock(),
            is_urgent=is_urgent,
        )
        if batch:
            (self._urgent_calls if is_urgent else self._calls).add(plan, batch)
        return plan

    def _slots_ahead(self) -> list[tuple[int, int]]:
        """Give slots to streams whose first frames are still being made, so that these find them reset."""
        waiting = [stream for stream in self._begun.values() if stream.slot == NO_SLOT and not stream.pending]
        return [(self._take_slot(stream), stream.num_skipped) for stream in waiting if self._slots.has_free(stream)]

    def _size_of_next(self, stream: DecodedStream) -> int:
        """How many frames of this stream the next call decodes, padding included."""
        if stream.num_unheard > 0:
            return self._context.next_unheard(stream.num_unheard)
        num_frames = min(len(stream.pending), stream.chunk_frames)
        return self._sizes.padded(num_frames) if stream.end else self._sizes.whole(num_frames)

    def apply(self, plan: DecodePlan, samples: Int16Array | Float32Array) -> list[PcmRecord]:
        """Account for the audio of the batch, `samples` [rows, frames * frame_samples], and return the records for the
        service. They hold `samples` itself."""
        if len(samples) != len(plan.slots):
            raise RuntimeError(f"the runner returned {len(samples)} rows, {len(plan.slots)} were to be decoded")
        batch = self._take_call(plan, is_heard=True)
        now = self._clock()
        if not plan.is_urgent:  # these are short, and others that wait do not wait for them
            self._pace.note_call(now - plan.began_s, len(batch) * plan.codes.shape[1])
        for stream in batch:
            if stream.num_unheard == 0:
                self._outgoing.add(FirstChunk(stream.stream_id, *(*stream.times, plan.began_s, now)))
        for rows, audio in plan.audio(samples):
            self._outgoing.add(audio)
            if self._max_silent_frames:
                assert not isinstance(audio.samples, list)  # as it is only when it was read from a ring
                for stream, tail in zip(batch[rows], silent_tail(audio.samples, audio.num_frames), strict=True):
                    if stream.falls_silent(tail, audio.num_frames, self._max_silent_frames):
                        self._outgoing.add(SilentStream(stream.stream_id, stream.num_silent))
        for stream, length in zip(batch, plan.lengths, strict=True):
            num_sent = min(length, max(0, stream.first_pending + length - self._context.silent_first_frames))
            stream.dry_s = max(stream.dry_s, now) + num_sent * self._frame_s
            stream.first_pending += length
            if not stream.is_background:
                stream.chunk_frames = self._sizes.wanted(stream.num_decoded)
            stream.gathered_s = NEVER_S
            self._put_back(stream)
        return self._outgoing.take()

    def apply_unheard(self, plan: DecodePlan) -> list[PcmRecord]:
        """Account for a batch that the runner remembered without making audio; like `apply` otherwise."""
        batch = self._take_call(plan, is_heard=False)
        self._pace.note_unheard_call(self._clock() - plan.began_s)
        for stream in batch:
            was_in_reference = stream.first_pending < 0
            stream.first_pending += plan.codes.shape[1]
            if was_in_reference and not stream.first_pending:
                kept = self._references.place(stream.reference)
                self._copies += [] if kept is None else [(stream.slot, kept)]
            self._put_back(stream)
        return self._outgoing.take()

    def _put_back(self, stream: DecodedStream) -> None:
        """Let other calls have a stream whose call is over."""
        stream.is_decoding = False
        self._file(stream)
        self._finish_if_drained(stream)

    def _take_call(self, plan: DecodePlan, *, is_heard: bool) -> list[DecodedStream]:
        """The streams of a call that is over."""
        if plan.is_heard != is_heard:
            raise RuntimeError("audio was made of frames that were only to be remembered, or none of others")
        return (self._urgent_calls if plan.is_urgent else self._calls).take(plan)

    def _begin_behind_kept_reference(self, stream: DecodedStream) -> None:
        """Skip the stream's reference if the state after it is kept and a slot is free."""
        if not self._slots.has_free(stream) or (kept := self._references.find(stream.reference)) is None:
            return
        self._copies.append((kept, self._take_slot(stream)))
        for _ in range(-stream.first_pending):
            stream.pending.popleft()
        stream.first_pending = 0
        self._file(stream)

    def _take_slot(self, stream: DecodedStream) -> int:
        self._with_reference.pop(stream.stream_id, None)
        return self._slots.take(stream)

    def _file(self, stream: DecodedStream) -> None:
        self._due.file(stream, is_alone=len(self._streams) == 1)

    def _finish_if_drained(self, stream: DecodedStream) -> None:
        """Remove a stream that has ended and has nothing left to decode: free its slot, pass its EndStream on.

        No stream leaves in any other way.
        """
        if stream.end is None or stream.pending or stream.is_decoding:
            return
        del self._streams[stream.stream_id]
        self._num_listeners -= not stream.is_background
        self._with_reference.pop(stream.stream_id, None)
        self._begun.pop(stream.stream_id, None)
        self._slots.give_back(stream)
        self._outgoing.add(stream.end)
        self._pass_on_ended_servers()

    def check_conservation(self) -> None:
        """Raise RuntimeError unless every slot is either free or used by a stream."""
        self._slots.check_conservation(self._streams.values())
