"""Who prefills, who steps, who waits, who ends. Pure: no torch, no channels; the clock is an argument.

One turn: `on_record` for each command, `next_step` for what to run, the runner runs it, `apply` for what came out. No
command is taken between `next_step` and `apply`, so every decision sees the result of the step before it.

* Admission is first come, first served, and takes a slot and pages for all that a stream may need, so that nothing can
  run short later. Streams that go on behind frames made before come first: somebody is listening to them.
* A stream that has had no text for a while lends its slot to one that waits. It ends here (YIELDED), and the engine
  opens it again behind its frames once there is text.
* Prompts that begin alike share the pages of what they have in common, and only the rest of their rows go in.
* Prompt rows share a budget per step: a long prompt goes in by pieces beside the live streams instead of stalling them.
* A stream is stepped only while it has a text id to feed (or its text has ended) and credit for the frame. All its
  limits are folded into one frame number, `stop_at`, which changes only with a command: a step costs each row one
  comparison.
* A stream that has far more frames than its text can take is ended as a runaway. From half of that on it is a suspect,
  whose frames are looked at one by one for repetitions.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.config import EngineConfig
from sonorant.engine.ipc.messages import (
    BeginStream,
    CancelStream,
    EndStream,
    EndText,
    FlushStream,
    FrameBatch,
    FrameRecord,
    GrantCredit,
    OpenStream,
    PushText,
    TextPositions,
)
from sonorant.engine.talker.faults import fault_of_ids, fault_of_stream
from sonorant.engine.talker.pages import Lease, PagePool
from sonorant.engine.talker.prefix import page_keys
from sonorant.engine.talker.rows import BROKEN, DecodeRow, PrefillRow, StepPlan
from sonorant.engine.talker.runaway import GRACE_FRAMES, Repetition
from sonorant.engine.talker.slots import SlotState, SlotTable
from sonorant.engine.talker.stream import NEVER, NO_SLOT, NOT_WATCHED, Stream
from sonorant.engine.talker.text_tracker import TextTracker
from sonorant.engine.types import FinishReason, Float32Array, Int16Array, StreamEnd

NO_SCORES = "the model's scores are no finite numbers: use other sampling settings, or another voice"

LENDS_AFTER_S = 1.0  # without text; whoever writes word by word does not lose the slot between two words

StreamCommand: TypeAlias = OpenStream | PushText | EndText | GrantCredit | CancelStream


class Scheduler:
    """Owns every open stream of one talker, its slots and its pages."""

    def __init__(
        self,
        config: EngineConfig,
        checkpoint: Checkpoint,
        num_pages: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checkpoint = checkpoint
        self._clock = clock
        self._max_context = config.talker.max_context
        self._max_prefill_rows = config.talker.max_prefill_rows
        self._frames_per_token = config.talker.runaway_frames_per_token
        self._max_repeated_frames = config.talker.runaway_repeated_frames or NEVER
        self._tts_pad_id = checkpoint.text_ids.tts_pad
        self._eos_id = checkpoint.talker.codec_eos_id
        self._slots = SlotTable(config.talker.num_slots)
        self._pages = PagePool(num_pages, config.talker.page_size)
        self._tracker = TextTracker(config.talker.num_slots)
        # Each open stream is in `_streams` and in one of: waiting, returning, prefilling, decoding, or it pauses
        # (STARVED or BLOCKED).
        self._streams: dict[int, Stream] = {}
        self._waiting: dict[int, Stream] = {}  # a dict is a queue that forgets from the middle at no cost
        self._returning: dict[int, Stream] = {}  # wait likewise, ahead of the others
        self._prefilling: dict[int, Stream] = {}
        self._decoding: dict[int, Stream] = {}
        self._suspects: dict[int, Stream] = {}  # some of those that decode or pause
        self._starved: dict[int, Stream] = {}  # some of those that pause, the longest first
        self._records: list[FrameRecord] = []  # to be published with the next plan
        self.wait_s: float | None = None  # after a plan without rows: when to ask again, should no command come before

    @property
    def num_streams(self) -> int:
        return len(self._streams)

    # Commands

    def on_record(self, command: StreamCommand) -> None:
        """Take one command. One for a stream that has ended has crossed that end on its way, and is dropped."""
        if isinstance(command, OpenStream):
            self._on_open(command)
            return
        stream = self._streams.get(command.stream_id)
        if stream is None:
            return
        match command:
            case PushText(token_ids=token_ids):
                self._on_text(stream, token_ids)
            case EndText():
                stream.text_ended = True
                self._on_limits_changed(stream)
            case GrantCredit(num_frames=num_frames):
                if num_frames < 1:
                    raise ValueError(f"stream {command.stream_id} was granted {num_frames} frames, which is no grant")
                stream.granted_frames += num_frames
                self._on_limits_changed(stream)
            case CancelStream():
                self._end(stream, FinishReason.CANCELLED)

    def _on_open(self, command: OpenStream) -> None:
        stream_id = command.stream_id
        if stream_id in self._streams:
            raise ValueError(f"stream {stream_id} was opened twice")
        num_known = 0 if command.known_codes is None else len(command.known_codes)
        if command.credit_frames <= num_known:
            raise ValueError(
                f"stream {stream_id} was opened with a credit of {command.credit_frames}; frame {num_known} needs more"
            )
        fault = self._fault_of(command)
        frames_per_token = self._frames_per_token
        stream = Stream.opened(
            replace(command, known_codes=None) if fault else command, frames_per_token, self._tts_pad_id
        )
        self._streams[stream_id] = stream
        if fault:
            self._end(stream, FinishReason.FAILED, fault)
        elif num_known >= min(command.sampling.max_frames, stream.runaway_at):  # its end was lost on its way
            self._end_at_limit(stream)
        else:
            (self._returning if num_known else self._waiting)[stream_id] = stream
            stream.page_keys = page_keys(stream.plan, command.x_vector, stream.codes, self._pages.page_size)
            if stream.repetition is not None:
                self._suspects[stream_id] = stream

    def _fault_of(self, command: OpenStream) -> str:
        positions = _positions_of(command)
        if positions > self._max_context:
            return (
                f"{command.plan.num_rows} prompt rows and {command.sampling.max_frames} frames need {positions} "
                f"positions, max_context is {self._max_context}: lower max_frames or shorten the prompt"
            )
        if (num_pages := self._pages.pages_for(positions)) > self._pages.num_pages:
            return (
                f"{positions} positions need {num_pages} KV pages, the talker has {self._pages.num_pages} in all: "
                f"lower max_frames or shorten the prompt"
            )
        return fault_of_stream(command, self._checkpoint)

    def _on_text(self, stream: Stream, token_ids: Sequence[int]) -> None:
        if stream.text_ended:
            raise ValueError(f"stream {stream.stream_id} got text after the end of its text")
        if fault := fault_of_ids("text", token_ids, 0, self._checkpoint.talker.text_vocab_size):
            self._end(stream, FinishReason.FAILED, fault)
            return
        stream.trailing.extend(token_ids)
        stream.num_text_tokens += len(token_ids)
        self._on_limits_changed(stream)

    def _on_limits_changed(self, stream: Stream) -> None:
        stream.update_limits()
        if stream.slot != NO_SLOT and self._slots.state(stream.slot) in (SlotState.STARVED, SlotState.BLOCKED):
            self._settle(stream)

    # The step

    def next_step(self) -> StepPlan:
        """What to run now. With rows in it, `apply` must follow before anything else."""
        now = self._clock()
        self._admit(now)
        stepped: list[Stream] = []
        prefills = self._prefill_rows(stepped) if self._prefilling else []
        pad = self._tts_pad_id
        decodes = [
            DecodeRow(
                stream.slot,
                stream.trailing[frame - 1] if frame <= len(stream.trailing) else pad,
                stream.first_position + frame,
                frame,
                frame >= stream.eos_from,
                stream.watched,
            )
            for stream in self._decoding.values()
            for frame in (stream.num_frames,)
        ]
        stepped += self._decoding.values()
        return StepPlan(self._take_records(), prefills, decodes, stepped, now)

    def apply(
        self, plan: StepPlan, codes: Int16Array, text_logits: Float32Array | None = None
    ) -> list[FrameRecord]:  # [rows that sample, codebooks], [decode rows that are watched, WINDOW]
        """Account for the outcome of the step; returns what Code2Wav must hear of it. Takes `codes` over."""
        now = self._clock()
        stepped = plan.streams
        first_frames = stepped[: len(stepped) - len(plan.decodes)]
        if len(codes) != len(stepped):
            raise RuntimeError(f"the runner returned {len(codes)} rows, {len(stepped)} were to sample")
        if not stepped:
            return []
        firsts = codes[:, 0]
        for stream, first in zip(first_frames, firsts.tolist(), strict=False):
            self._slots.move(stream.slot, SlotState.DECODE)
            self._decoding[stream.stream_id] = stream
            if first == BROKEN:  # what its prompt has left in the pages is for nobody
                continue
            for page, key in zip(stream.pages, stream.page_keys, strict=False):  # frames are written behind these
                self._pages.share(page, key)
        if text_logits is not None:
            self._track_text(first_frames, stepped[len(first_frames) :], text_logits)
        is_over = (firsts == self._eos_id) | (firsts == BROKEN)
        made, over = stepped, list[tuple[Stream, int]]()
        if is_over.any():
            over = [
                (stream, first)
                for stream, first, end in zip(stepped, firsts.tolist(), is_over.tolist(), strict=True)
                if end
            ]
            made = [stream for stream, end in zip(stepped, is_over.tolist(), strict=True) if not end]
            codes = codes[~is_over]
        if made:
            self._records.append(
                FrameBatch(
                    stream_ids=np.array([stream.stream_id for stream in made], np.int64),
                    frame_indices=np.array([stream.num_frames for stream in made], np.int32),
                    codes=codes,
                    began_s=plan.began_s,
                    ended_s=now,
                )
            )
        for stream in made:
            stream.last_frame_s = now
            stream.num_frames += 1
            if stream.num_frames >= stream.stop_at:
                self._on_limit_reached(stream)
        if self._suspects:
            self._watch_suspects(made, codes)
        for stream, first in over:
            if first == BROKEN:
                self._end(stream, FinishReason.NO_SCORES, NO_SCORES)
            else:
                self._end(stream, FinishReason.COMPLETED)
        return self._take_records()

    def _track_text(self, first: Sequence[Stream], decoded: Sequence[Stream], logits: Float32Array) -> None:
        """Before the frames go out, so that Code2Wav passes on where they are in the text ahead of their audio.

        A frame that is made with the prompt is where the stream begins: at the first word it is silent.
        """
        begun = [stream for stream in first if stream.watched != NOT_WATCHED]
        watched = [stream for stream in decoded if stream.watched != NOT_WATCHED] if len(logits) else []
        if watched:
            self._tracker.advance(
                [stream.slot for stream in watched],
                # Rows behind that of this frame are not there yet.
                [min(s.num_text_tokens, s.first_position + s.num_frames - s.plan.text_row + 1) for s in watched],
                logits,
            )
        if told := begun + watched:
            slots = [stream.slot for stream in told]
            self._records.append(
                TextPositions(
                    np.array([stream.stream_id for stream in told], np.int64),
                    np.array([stream.num_frames for stream in told], np.int32),
                    self._tracker.positions(slots),
                )
            )
            for stream, window in zip(told, self._tracker.windows(slots), strict=True):
                stream.watched = stream.plan.text_row + window

    def _admit(self, now: float) -> None:
        """In order: one that waits for pages holds up those behind it, or it might wait forever."""
        self.wait_s = None
        while queue := self._returning or self._waiting:
            stream = next(iter(queue.values()))
            lease = self._lease(stream) if self._slots.num_free else None
            if lease is not None:
                del queue[stream.stream_id]
                self._begin(stream, lease, now)
            elif not self._take_slot_of_starved(now):
                return

    def _lease(self, stream: Stream) -> Lease | None:
        num_shareable = (stream.plan.num_rows - 1) // self._pages.page_size  # the last row goes in, to sample from
        num_pages = self._pages.pages_for(_positions_of(stream.open))
        return self._pages.lease(num_pages, stream.page_keys[:num_shareable])

    def _begin(self, stream: Stream, lease: Lease, now: float) -> None:
        self._prefilling[stream.stream_id] = stream
        stream.slot = self._slots.take()
        stream.pages = lease.pages
        stream.num_shared_rows = stream.num_rows_done = lease.num_shared * self._pages.page_size
        stream.started_s = now
        if (position := stream.open.times_text_from) is not None:
            self._tracker.begin(stream.slot, position)
            stream.watched = stream.plan.text_row + self._tracker.windows([stream.slot])[0]
        opened_s = stream.open.opened_s
        self._records.append(BeginStream(stream.stream_id, opened_s, now, stream.codes, stream.first_frame))

    def _take_slot_of_starved(self, now: float) -> bool:
        """From whoever has been without text for the longest, if that is long enough."""
        if not self._starved:
            return False
        stream = next(iter(self._starved.values()))
        self.wait_s = stream.starved_s + LENDS_AFTER_S - now
        if self.wait_s > 0:
            return False
        self._end(stream, FinishReason.YIELDED)
        return True

    def _prefill_rows(self, stepped: list[Stream]) -> list[PrefillRow]:
        """Those that reach the end of their prompts go to `stepped`."""
        rows = []
        budget = self._max_prefill_rows
        for stream in list(self._prefilling.values()):
            if not budget:
                break
            plan = stream.plan
            start = stream.num_rows_done
            stop = stream.num_rows_done = min(plan.num_rows, start + budget)
            budget -= stop - start
            rows.append(
                PrefillRow(
                    slot=stream.slot,
                    pages=stream.pages,
                    plan=plan,
                    start=start,
                    stop=stop,
                    sampling=stream.open.sampling,
                    x_vector=stream.open.x_vector,
                    reference_codes=stream.codes,
                    allow_eos=stream.num_frames >= stream.eos_from,
                    first_frame=stream.num_frames,
                    num_shared_rows=stream.num_shared_rows,
                )
            )
            if stop == plan.num_rows:
                del self._prefilling[stream.stream_id]
                stepped.append(stream)
        return rows

    # Changes of state

    def _on_limit_reached(self, stream: Stream) -> None:
        """The stream cannot be stepped again as things are: it is over, it pauses, or it becomes a suspect."""
        if stream.num_frames >= min(stream.open.sampling.max_frames, stream.runaway_at):
            self._end_at_limit(stream)
            return
        if stream.num_frames >= stream.suspect_at:
            stream.repetition = Repetition()
            self._suspects[stream.stream_id] = stream
            stream.update_limits()
            if stream.num_frames < stream.stop_at:
                return
        del self._decoding[stream.stream_id]
        self._settle(stream)
        self._records.append(FlushStream(stream.stream_id))

    def _watch_suspects(self, made: Sequence[Stream], codes: Int16Array) -> None:
        for stream, code in zip(made, codes[:, 0].tolist(), strict=True):
            if stream.stream_id in self._suspects and stream.repetition is not None:
                num_repeated = stream.repetition.add(code)
                if num_repeated >= self._max_repeated_frames:
                    self._end_runaway(stream, f"the last {num_repeated} of them repeating what came before")

    def _end_at_limit(self, stream: Stream) -> None:
        if stream.num_frames >= stream.open.sampling.max_frames:
            self._end(stream, FinishReason.MAX_FRAMES)
        else:
            limit = f"{GRACE_FRAMES} + {stream.frames_per_token} per token"
            self._end_runaway(stream, f"which is the limit ({limit})")

    def _end_runaway(self, stream: Stream, sign: str) -> None:
        made = f"{stream.num_frames} frames for {stream.num_text_tokens} text tokens"
        self._end(stream, FinishReason.RUNAWAY, f"the model made {made}, {sign}")

    def _settle(self, stream: Stream) -> None:
        """Bring the state of a stream that has a slot and a frame 0 in line with what it has to go on with.

        Without credit it is BLOCKED, whatever its text: text is late only once it could be used.
        """
        if stream.num_frames < stream.stop_at:
            state = SlotState.DECODE
            self._decoding[stream.stream_id] = stream
        elif stream.num_frames >= stream.granted_frames:
            state = SlotState.BLOCKED
        else:
            state = SlotState.STARVED
        if state is not self._slots.state(stream.slot):
            self._slots.move(stream.slot, state)
            self._starved.pop(stream.stream_id, None)
            if state is SlotState.STARVED:
                stream.starved_s = self._clock()
                self._starved[stream.stream_id] = stream

    def _end(self, stream: Stream, reason: FinishReason, detail: str = "") -> None:
        """The one way out: everything the stream holds is free again, and its EndStream is on the way."""
        del self._streams[stream.stream_id]
        groups = (self._waiting, self._returning, self._prefilling, self._decoding, self._suspects, self._starved)
        for group in groups:
            group.pop(stream.stream_id, None)
        if stream.slot == NO_SLOT:
            queue_s, generation_s = self._clock() - stream.open.opened_s, 0.0
        else:
            self._slots.move(stream.slot, SlotState.FREE)
            self._pages.give_back(stream.pages)
            queue_s = stream.started_s - stream.open.opened_s
            generation_s = stream.last_frame_s - stream.started_s if stream.last_frame_s else 0.0
        end = StreamEnd(reason, stream.num_frames, queue_s, generation_s, detail)
        self._records.append(EndStream(stream.stream_id, end))

    def _take_records(self) -> list[FrameRecord]:
        records, self._records = self._records, []
        return records

    # Checks

    def check_conservation(self) -> None:
        """What is free and what the open streams hold is all there is. Raises if that does not hold."""
        self._slots.check_conservation()
        self._pages.check_conservation()
        num_slots = sum(stream.slot != NO_SLOT for stream in self._streams.values())
        num_leases = sum(len(stream.pages) for stream in self._streams.values())
        if (num_slots, num_leases) != (self._slots.num_used, self._pages.num_leases):
            raise RuntimeError(
                f"the open streams hold {num_slots} slots and {num_leases} leases of KV pages, "
                f"{self._slots.num_used} and {self._pages.num_leases} are out"
            )


def _positions_of(command: OpenStream) -> int:
    """Frames made before stand among `max_frames`."""
    return command.plan.num_rows + command.sampling.max_frames
