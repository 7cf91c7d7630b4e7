"""Decides which streams prefill, step, wait and end. Pure: no torch, no channels; the clock is an argument.

One turn: pass each command to `on_record`, ask `next_step` what to run, have the runner run it, and pass the result to
`apply`. `next_step` may be asked once more before that, so that the device need not wait for decisions. Then a stream
that has ended in the step before has a row in the next one, whose result is dropped. A plan is a value. Each that has
rows is applied once, in their order: anything else raises RuntimeError and changes nothing.

* Admission takes a slot and pages for the frames that the text so far takes unless the stream becomes a suspect
  (below). `admission.py` says which stream comes first, and what it takes. A stream that gives up its slot ends
  here (YIELDED), and the engine opens it again behind its frames, at once or when there is text for it.
* A stream that needs more pages, for text that came later or as a suspect, is given them then; an interactive one also
  those of background streams. If there are too few it ends here (YIELDED) and gives back all that it has.
* Prompts with the same beginning share the pages that hold it, and only the rest of their rows is prefilled.
* Which of the streams with slots have rows in a step says `step_rows.py`.
* A stream is stepped only while it has a text id to feed (or its text has ended) and credit for the frame. One frame
  number, `stop_at`, combines all its limits. Only commands and new pages change it, so a step costs one comparison
  per row.
* A stream that has far more frames than its text can take is ended as a runaway. From half of that limit on, it is a
  suspect: each of its frames is checked for repetitions.
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
    EndServer,
    EndStream,
    EndText,
    FlushStream,
    FrameBatch,
    FrameRecord,
    GrantCredit,
    OpenStream,
    PushText,
)
from sonorant.engine.ipc.server_ids import server_of
from sonorant.engine.talker.schedule.admission import ONE_STREAM, Admission, BackgroundLimits
from sonorant.engine.talker.schedule.faults import fault_of_ids, fault_of_stream
from sonorant.engine.talker.schedule.limits import RunawaySuspects, end_at_limit, is_at_limit
from sonorant.engine.talker.schedule.memory.capacity import Capacity
from sonorant.engine.talker.schedule.rows import BROKEN, StepPlan
from sonorant.engine.talker.schedule.slots import SlotState
from sonorant.engine.talker.schedule.step_rows import StepRows
from sonorant.engine.talker.schedule.stream import NEVER, NO_SLOT, NOT_WATCHED, TalkerStream
from sonorant.engine.talker.schedule.timed_text import TimedText
from sonorant.engine.types import FinishReason, Float32Array, Int16Array, StreamEnd
from sonorant.engine.under_way import UnderWay

NO_SCORES = "the model's scores are not finite: use other sampling settings, or another voice"

StreamCommand: TypeAlias = OpenStream | PushText | EndText | GrantCredit | CancelStream | EndServer


class Scheduler:
    """Owns every open stream of one talker, its slots and its pages."""

    def __init__(
        self,
        config: EngineConfig,
        checkpoint: Checkpoint,
        num_pages: int,
        clock: Callable[[], float] = time.monotonic,
        background_limits: BackgroundLimits = ONE_STREAM,
    ) -> None:
        talker = config.talker
        self._checkpoint = checkpoint
        self._clock = clock
        self._frames_per_token = talker.runaway_frames_per_token
        self._tts_pad_id = checkpoint.text_ids.tts_pad
        self._eos_id = checkpoint.talker.codec_eos_id
        self._capacity = Capacity(talker.num_slots, num_pages, talker.page_size, talker.max_context)
        self._timed_text = TimedText(talker.num_slots)
        self._suspects = RunawaySuspects(talker.runaway_repeated_frames or NEVER)
        # Each open stream is in `_streams`, and it waits or has rows to come; or it pauses (STARVED or BLOCKED), or its
        # last frame that it may make for now is being made.
        self._streams: dict[int, TalkerStream] = {}
        self._admission = Admission(self._capacity, talker.num_slots, num_pages, background_limits.most_streams)
        self._rows = StepRows(
            talker.num_slots, checkpoint.text_ids.tts_pad, talker.max_prefill_rows, background_limits.most_rows
        )
        self._grown: dict[int, TalkerStream] = {}  # those with pages that the runner does not know of
        self._records: list[FrameRecord] = []  # to be published with the next plan
        self._under_way = UnderWay[StepPlan, list[TalkerStream]](most=2)  # with the streams that sample
        self._located: StepPlan | None = None

    @property
    def wait_s(self) -> float | None:
        """After a plan without rows: ask again after so long if no command came before."""
        return self._admission.wait_s

    @property
    def num_streams(self) -> int:
        return len(self._streams)

    # Commands

    def on_record(self, command: StreamCommand) -> None:
        """Take one command. Drop it if its stream has ended: it was on its way when the stream ended."""
        if isinstance(command, OpenStream):
            self._on_open(command)
            return
        if isinstance(command, EndServer):
            self._end_server(command)
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
                    raise ValueError(f"stream {command.stream_id} was granted {num_frames} frames, not at least one")
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
        fault = self._capacity.fault_of(command) or fault_of_stream(command, self._checkpoint)
        frames_per_token = self._frames_per_token
        stream = TalkerStream.opened(
            replace(command, known_codes=None) if fault else command, frames_per_token, self._tts_pad_id
        )
        self._streams[stream_id] = stream
        if fault:
            self._end(stream, FinishReason.FAILED, fault)
        elif is_at_limit(stream):  # it had ended, but its EndStream was lost
            self._end(stream, *end_at_limit(stream))
        else:
            self._admission.add(stream)
            self._capacity.prepare(stream)
            if stream.repetition is not None:
                self._suspects.add(stream)

    def _end_server(self, command: EndServer) -> None:
        for stream in [each for each in self._streams.values() if server_of(each.stream_id) == command.server]:
            self._end(stream, FinishReason.CANCELLED)
        self._records.append(command)

    def _on_text(self, stream: TalkerStream, token_ids: Sequence[int]) -> None:
        if stream.text_ended:
            raise ValueError(f"stream {stream.stream_id} got text after the end of its text")
        if fault := fault_of_ids("text", token_ids, 0, self._checkpoint.talker.text_vocab_size):
            self._end(stream, FinishReason.FAILED, fault)
            return
        stream.trailing.extend(token_ids)
        stream.num_text_tokens += len(token_ids)
        self._on_limits_changed(stream)

    def _on_limits_changed(self, stream: TalkerStream) -> None:
        stream.update_limits()
        match self._capacity.state(stream):
            case SlotState.DECODE if self._rows.decodes(stream):
                self._rows.changed(stream)
            case SlotState.DECODE if stream.num_started < stream.stop_at:
                self._rows.decode(stream)
            case SlotState.STARVED | SlotState.BLOCKED if self._has_pages(stream):
                self._settle(stream)

    # The step

    def next_step(self) -> StepPlan:
        """Return what to run now. If the plan has rows, apply its result; at most one other plan may come before."""
        self._under_way.expect_room()
        now = self._clock()
        self._admit(now)
        prefills, first, decodes, streams = self._rows.take()
        for stream in first:
            self._capacity.move(stream, SlotState.DECODE)
            stream.num_started = stream.num_frames + 1
            if stream.num_started < stream.stop_at:
                self._rows.decode(stream)
        grown, self._grown = self._grown, {}
        pages = [(stream.slot, stream.pages) for stream in grown.values()]
        sampling = [*first, *streams]
        stream_ids = [stream.stream_id for stream in sampling]
        plan = StepPlan(self._take_records(), prefills, decodes, stream_ids, now, pages)
        if plan.has_rows:
            self._under_way.add(plan, sampling)
        return plan

    def locate(self, plan: StepPlan, text_logits: Float32Array | None) -> None:
        """Find where in their texts the step's streams are. `apply` returns that ahead of their frames.

        `text_logits` [decode rows that are watched, WINDOW]; None without an alignment head. Call it once, after
        `apply` of the step before and before the next `next_step`.
        """
        streams = self._under_way.newest(plan)
        if plan is self._located:
            raise RuntimeError("a step was located twice")
        self._located = plan
        if text_logits is None:
            return
        num_first = len(streams) - len(plan.decodes)
        first = [stream for stream in streams[:num_first] if stream.is_open]
        watched = [stream for stream in streams[num_first:] if stream.watched != NOT_WATCHED]
        if len(text_logits):
            are_open = [stream.is_open for stream in watched]
            watched, text_logits = [stream for stream in watched if stream.is_open], text_logits[are_open]
        positions = self._timed_text.advance(first, watched, text_logits)
        if positions is not None:
            self._records.append(positions)
            for stream in watched:
                self._rows.changed(stream)

    def apply(self, plan: StepPlan, codes: Int16Array) -> list[FrameRecord]:
        """Account for the result of the step, `codes` [rows that sample, codebooks], and return the records for
        Code2Wav. They may hold `codes` itself."""
        if len(codes) != len(plan.stream_ids):
            raise RuntimeError(f"the runner returned {len(codes)} rows, {len(plan.stream_ids)} were to sample")
        stepped = self._under_way.take(plan)
        now = self._clock()
        if not stepped:
            return []
        first_frames = stepped[: len(stepped) - len(plan.decodes)]
        for stream, first in zip(first_frames, codes[:, 0].tolist(), strict=False):
            if stream.is_open and first != BROKEN:  # else the prompt's pages are broken, too, and must not be shared
                self._capacity.share_prompt(stream)
        made, codes, over = self._frames_and_ends(stepped, codes)
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
        at_limit = []
        for stream in made:
            stream.last_frame_s = now
            stream.num_frames += 1
            if stream.num_frames >= stream.stop_at:
                at_limit.append(stream)
        for stream, is_broken in over:
            if is_broken:
                self._end(stream, FinishReason.NO_SCORES, NO_SCORES)
            else:
                self._end(stream, FinishReason.COMPLETED)
        for stream in at_limit:
            if stream.is_open:  # else it has given way to one before it
                self._on_limit_reached(stream)
        for stream, detail in self._suspects.repeating(made, codes):
            self._end(stream, FinishReason.RUNAWAY, detail)
        return self._take_records()

    def _frames_and_ends(
        self, stepped: list[TalkerStream], codes: Int16Array
    ) -> tuple[list[TalkerStream], Int16Array, list[tuple[TalkerStream, bool]]]:
        """Return the open streams that made a frame, their `codes` [streams, codebooks], and the open streams that
        ended, each with whether its scores are not finite."""
        firsts = codes[:, 0]
        is_broken = firsts == BROKEN
        is_over = is_broken | (firsts == self._eos_id)
        are_open = [stream.is_open for stream in stepped]
        if all(are_open) and not is_over.any():
            return stepped, codes, []
        is_open = np.array(are_open)
        makes = is_open & ~is_over
        over = [(stepped[row], bool(is_broken[row])) for row in np.flatnonzero(is_open & is_over).tolist()]
        return [stepped[row] for row in np.flatnonzero(makes).tolist()], codes[makes], over

    def _admit(self, now: float) -> None:
        while True:
            if (stream := self._admission.admit()) is not None:
                self._begin(stream, now)
            elif (stream := self._admission.who_yields(now)) is not None:
                self._end(stream, FinishReason.YIELDED)
            else:
                return

    def _begin(self, stream: TalkerStream, now: float) -> None:
        self._rows.prefill(stream)
        stream.started_s = now
        self._timed_text.begin(stream)
        opened_s, first_frame, is_background = stream.request.opened_s, stream.first_frame, stream.is_background
        self._records.append(
            BeginStream(stream.stream_id, opened_s, now, stream.codes, first_frame, is_background=is_background)
        )

    # Changes of state

    def _on_limit_reached(self, stream: TalkerStream) -> None:
        """Handle a stream that has reached `stop_at`: end it, have it pause, or make it a suspect."""
        if is_at_limit(stream):
            self._end(stream, *end_at_limit(stream))
            return
        if stream.num_frames >= stream.suspect_at:
            self._suspects.add(stream)
            stream.update_limits()
        if not self._has_pages(stream):
            return
        self._settle(stream)
        if not self._rows.decodes(stream):
            self._records.append(FlushStream(stream.stream_id, is_blocked=stream.has_text))

    def _has_pages(self, stream: TalkerStream) -> bool:
        """Give a stream the pages that it lacks, or end it as YIELDED. Returns whether it is still open."""
        if stream.lacks_pages:
            while not (pages := self._capacity.grow(stream)):
                yielding = None if stream.is_background else self._admission.last_of_background()
                self._end(yielding or stream, FinishReason.YIELDED)
                if yielding is None:
                    return False
            self._admission.grew(stream, pages)
            self._grown[stream.stream_id] = stream
        return True

    def _settle(self, stream: TalkerStream) -> None:
        """Set the state of a stream that has a slot and has made frame 0: DECODE, BLOCKED or STARVED.

        Without credit it is BLOCKED, whether it has text or not: without credit it could not use text.
        """
        if stream.num_frames < stream.stop_at:
            state = SlotState.DECODE
            self._rows.decode(stream)
        elif stream.num_frames >= stream.granted_frames:
            state = SlotState.BLOCKED
        else:
            state = SlotState.STARVED
        if state is not self._capacity.state(stream):
            self._capacity.move(stream, state)
            if state is SlotState.STARVED:
                self._admission.starves(stream, self._clock())
            else:
                self._admission.starves_no_more(stream)

    def _end(self, stream: TalkerStream, reason: FinishReason, detail: str = "") -> None:
        """End a stream: give back all that it holds, and send its EndStream. No stream ends in any other way."""
        del self._streams[stream.stream_id]
        stream.is_open = False
        self._grown.pop(stream.stream_id, None)
        self._rows.discard(stream)
        self._suspects.drop(stream)
        self._admission.remove(stream)
        if stream.slot == NO_SLOT:
            queue_s, generation_s = self._clock() - stream.request.opened_s, 0.0
        else:
            self._capacity.release(stream)
            queue_s = stream.started_s - stream.request.opened_s
            generation_s = stream.last_frame_s - stream.started_s if stream.last_frame_s else 0.0
        end = StreamEnd(reason, stream.num_frames, queue_s, generation_s, detail)
        self._records.append(EndStream(stream.stream_id, end))

    def _take_records(self) -> list[FrameRecord]:
        records, self._records = self._records, []
        return records

    # Checks

    def check_conservation(self) -> None:
        """Raise RuntimeError unless free slots and pages, and those of the open streams, are all there are."""
        self._capacity.check_conservation(self._streams.values())
        self._admission.check_conservation(self._streams.values())
