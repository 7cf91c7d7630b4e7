"""An engine stream: turns its text into tokens and a prompt, and queues its audio for the caller.

It keeps everything that other workers need to continue it (the ids of its text, the codes of the delivered frames), so
it outlives its workers. It knows nothing of them; its keeper runs it where there is room.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sonorant.engine.checkpoint.config import Checkpoint
from sonorant.engine.errors import InvalidSynthesis
from sonorant.engine.ipc.messages import CancelStream, Command, EndText, GrantCredit, OpenStream, PushText
from sonorant.engine.prompt import layout
from sonorant.engine.prompt.tokenizer import Tokenizer
from sonorant.engine.serving.keeping import Keeper, Send, check_codes, local_end
from sonorant.engine.serving.text_times import TextTimes
from sonorant.engine.types import (
    FinishReason,
    Int16Array,
    PcmChunk,
    PromptPlan,
    StreamEnd,
    SynthesisParams,
)

GRANT_LUMP_FRAMES = 8  # grants are gathered to so many, so that a stream paced by its listener is decoded in chunks
MAX_CHARS_PER_POSITION = 16  # longer text is refused before it is tokenized; English has about 5 per token


@dataclass(frozen=True, slots=True)
class StreamModel:
    """What all streams of a worker pair have in common."""

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    max_context: int  # rows of a stream's prompt and frames together


@dataclass(frozen=True, slots=True)
class Opening:
    """What a stream is opened with; see `Engine.open`."""

    params: SynthesisParams
    prompt: layout.PromptLayout
    credit_frames: int
    known_codes: Int16Array | None  # [frames, codebooks] of frames made before; the stream begins after them
    outlives_workers: bool
    caller: int  # slots are shared out among callers; 0 is nobody in particular
    in_turn: bool
    is_background: bool


class EngineStream:
    """One engine stream. An async context manager: leaving it cancels a stream that has not ended, without waiting."""

    is_stored = False

    def __init__(self, stream_id: int, opening: Opening, model: StreamModel, keeper: Keeper) -> None:
        params, known_codes = opening.params, opening.known_codes
        self.stream_id = stream_id
        self.ended = False  # all is made; the last events may still wait here to be taken
        self.when_ended: Callable[[], None] | None = None  # called once, at the end
        self.outlives_workers = opening.outlives_workers
        self.run_id = 0  # the workers' id for it; 0 while it does not run
        self._send: Send  # to the workers that run it
        self._params = params
        self.caller = opening.caller
        self._in_turn = opening.in_turn
        self.is_background = opening.is_background
        self._keeper = keeper
        self._model = model
        self._lump_frames = min(GRANT_LUMP_FRAMES, opening.credit_frames)
        self._tokens = model.tokenizer.stream()
        self._prompt = opening.prompt
        self._num_chars = 0
        self._last_spoken_char: int | None = None  # index of the last letter or digit of the text
        self._ids: list[int] = []  # of all its text
        self._text_ended = False
        self._cancelled = False
        self._silence = ""  # set if the stream was cancelled because of silence, not by its caller
        # What a run would be opened with now:
        self._plan: PromptPlan | None = None
        self._trailing: list[int] = []  # text ids after the plan's rows
        self._sampling = params.sampling
        self._codes: list[Int16Array] = []  # [frames, codebooks] each
        if known_codes is not None and len(known_codes):
            self._codes.append(known_codes)
        self._num_frames = 0 if known_codes is None else len(known_codes)  # known or delivered
        self.text_times: TextTimes | None = None  # if asked for, and if the known frames have positions, too
        if params.times_text is not None and len(params.times_text) == self._num_frames:
            frame_ms, delay_ms = 1000 / model.checkpoint.frame_rate_hz, model.checkpoint.text_delay_ms
            self.text_times = TextTimes(model.tokenizer, frame_ms, delay_ms, params.times_text)
        self._credit_frames = self._num_frames + opening.credit_frames  # frames that may be made, known ones included
        self._granted_frames = 0  # granted, but not yet in `_credit_frames`
        self._first_opened_s = 0.0
        self.was_heard = False  # whether workers of this process have delivered any of its audio
        self._events: asyncio.Queue[PcmChunk | StreamEnd] = asyncio.Queue()  # bounded by credit

    # For callers

    def push_text(self, text: str, *, is_last: bool = False) -> None:
        """Add text, and with `is_last` end it. A stream that gets all its text so is opened with all of it.

        Raises InvalidSynthesis if the text grows too long; then the stream can only be cancelled.
        """
        if self._cancelled or self.ended:
            return
        if self._text_ended:
            raise RuntimeError("text after end_text")
        self._num_chars += len(text)
        if self._num_chars > MAX_CHARS_PER_POSITION * self._model.max_context:
            raise InvalidSynthesis(
                "text",
                f"the text has more than {MAX_CHARS_PER_POSITION * self._model.max_context} characters; split it into "
                "utterances",
            )
        if self.text_times is not None:
            self.text_times.offsets.push(text)
            if num_spoken := len(text) - next((k for k, c in enumerate(reversed(text)) if c.isalnum()), len(text)):
                self._last_spoken_char = self._num_chars - len(text) + num_spoken - 1
        ids = self._tokens.push(text)
        if is_last:
            self._end(ids)
        else:
            self._take(ids)

    def flush_text(self) -> None:
        """Speak what is held back because more text could change it, such as the letters of an unfinished word."""
        if not (self._cancelled or self.ended or self._text_ended):
            if self.text_times is not None:
                self.text_times.offsets.flush()
            self._take(self._tokens.flush())

    def end_text(self) -> None:
        """No more text comes. Raises InvalidSynthesis as `push_text` does."""
        if self._cancelled or self.ended or self._text_ended:
            return
        self._end([])

    def frames_in_common(self, pieces: Sequence[str | None]) -> int:
        """Return how many first frames depend only on what this text has in common with the text that was pushed.

        `pieces` are the new text as it would be pushed, None for a flush; more text may follow. Frame k depends on the
        prompt and the first k trailing tokens, so the result is 0 if the whole text is in the prompt.
        """
        if self._plan is None or self._params.non_streaming_mode:
            return 0
        tokens, ids = self._model.tokenizer.stream(), list[int]()
        for piece in pieces:
            ids += tokens.flush() if piece is None else tokens.push(piece)
        num_common = next(
            (number for number, (one, other) in enumerate(zip(ids, self._ids, strict=False)) if one != other),
            min(len(ids), len(self._ids)),
        )
        num_in_prompt = len(self._ids) + self._text_ended - len(self._trailing)
        return max(0, num_common - num_in_prompt + 1)

    def grant(self, num_frames: int) -> None:
        """Allow so many more frames to be made. Frames granted and not yet taken must stay within the engine's
        `EngineInfo.credit_frames`."""
        self._granted_frames += num_frames
        # A stream that begins with less credit than a lump uses smaller lumps, until it gets larger grants.
        self._lump_frames = min(GRANT_LUMP_FRAMES, max(self._lump_frames, num_frames))
        if self._granted_frames < self._lump_frames:
            return
        num_frames, self._granted_frames = self._granted_frames, 0
        self._credit_frames += num_frames
        self._tell(GrantCredit(self.run_id, num_frames))

    def cancel(self) -> None:
        """Stop: no more audio comes, only the end. Does nothing after the end or a second time."""
        if self._cancelled or self.ended:
            return
        self._cancelled = True
        while not self._events.empty():
            self._events.get_nowait()
        if self.run_id:
            self._send(CancelStream(self.run_id))
        else:
            self._keeper.end(self, local_end(FinishReason.CANCELLED))

    async def next_event(self) -> PcmChunk | StreamEnd:
        """Wait for the next chunk or for the end. The end comes exactly once; do not call this after it."""
        return await self._events.get()

    def ready_events(self) -> list[PcmChunk | StreamEnd]:
        """Return all events that `next_event` would return without waiting."""
        return [self._events.get_nowait() for _ in range(self._events.qsize())]

    @property
    def text_positions(self) -> tuple[float, ...]:
        """Where in its text the speech is at the middle of each frame, in tokens; for the frames where it is known."""
        return self._params.times_text or () if self.text_times is None else self.text_times.positions

    @property
    def said_at(self) -> int | None:
        """The frame in which the last of its text is being said; None if it is not said yet, or not known."""
        return None if self.text_times is None else self.text_times.said_at

    @property
    def moved_at(self) -> int | None:
        """The frame in which the token being said was reached; None if all of its text is said, or if not known."""
        return None if self.text_times is None else self.text_times.moved_at

    async def __aenter__(self) -> "EngineStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    # For the keeper

    @property
    def is_runnable(self) -> bool:
        """Whether it has text for the next frame, and credit."""
        if self._plan is None or self._cancelled or self.ended:
            return False
        has_text = self._text_ended or self._num_frames <= len(self._trailing)
        return has_text and self._num_frames < self._credit_frames + self._granted_frames

    def begin(self, run_id: int, now_s: float, send: Send) -> None:
        """Begin a run: send the workers an OpenStream that continues after all frames delivered so far."""
        assert self._plan is not None
        self.run_id, self._send = run_id, send
        self._first_opened_s = self._first_opened_s or now_s
        self._credit_frames, self._granted_frames = self._credit_frames + self._granted_frames, 0
        if len(self._codes) > 1:
            self._codes = [np.concatenate(self._codes)]
        plan, num_tokens = self._plan, len(self._ids)
        if plan.num_text_tokens != num_tokens or plan.text_ended != self._text_ended:
            plan = replace(
                plan, trailing=tuple(self._trailing), text_ended=self._text_ended, num_text_tokens=num_tokens
            )
        opening = OpenStream(
            run_id,
            plan,
            self._sampling,
            self._credit_frames,
            now_s if self.was_heard else self._first_opened_s,
            self._params.x_vector,
            self._params.reference_codes,
            self._codes[0] if self._codes else None,
            None if self.text_times is None else self.text_times.go_on_at(self._num_frames),
            self.caller,
            self._in_turn and not self.was_heard,
            self.is_background,
        )
        send(opening)

    def deliver(self, chunk: PcmChunk) -> None:
        """Queue audio from the workers."""
        self._codes.append(chunk.codes)
        self._num_frames += chunk.num_frames
        self.was_heard = True
        if not self._cancelled:
            self._events.put_nowait(chunk)

    def on_position(self, frame: int, position: float) -> None:
        """Take the position in the text at the middle of a frame, before the frame's audio comes."""
        assert self.text_times is not None, "only streams with text times get positions"
        self.text_times.add_position(frame, position)

    def on_silence(self, num_frames: int) -> None:
        """Cancel a stream that stays silent; its end will say why. With `ignore_eos` the stream continues."""
        if not (self._cancelled or self._silence or self._params.sampling.ignore_eos):
            self._silence = f"the model was silent for {num_frames} frames"
            self._send(CancelStream(self.run_id))

    def stop(self) -> bool:
        """Note that the run is over: its workers are gone, or gave its slot away. True if the stream was cancelled."""
        self.run_id = 0
        return self._cancelled or bool(self._silence)

    def has_another_run(self, end: StreamEnd) -> bool:
        return False

    def finish(self, end: StreamEnd) -> None:
        self.run_id = 0
        self.ended = True
        if self._silence and end.reason is FinishReason.CANCELLED and not self._cancelled:
            end = replace(end, reason=FinishReason.RUNAWAY, detail=self._silence)
        self._events.put_nowait(end)
        if self.when_ended is not None:
            when_ended, self.when_ended = self.when_ended, None
            when_ended()

    # Text and credit on their way

    def _end(self, ids: list[int]) -> None:
        """End the text. `ids`: of its last piece."""
        self._text_ended = True
        ids += self._tokens.end()
        if not ids and not self._ids:
            self._keeper.end(self, local_end(FinishReason.COMPLETED))  # nothing to say
            return
        self._take(ids, ended=True)
        if self.text_times is not None and self._last_spoken_char is not None:
            self.text_times.end_text(self._last_spoken_char)

    def _take(self, ids: list[int], ended: bool = False) -> None:
        self._ids += ids
        if self.text_times is not None:
            self.text_times.offsets.add(ids)
        if self._params.non_streaming_mode:
            self._fit_max_frames(self._prompt.min_rows + len(self._ids))
        else:
            layout.check_num_tokens(len(self._ids), self._model.max_context)
        if self._plan is None:
            self._plan = self._prompt.plan(self._ids, ended=ended)
            if self._plan is None:
                return
            self._trailing += self._plan.trailing
            self._sampling = replace(self._sampling, max_frames=self._fit_max_frames(self._plan.num_rows))
            self._tell()
            return
        new = self._prompt.column(ids, ended=ended)
        self._trailing += new
        commands: list[Command] = []
        if ids or ended:
            commands.append(PushText(self.run_id, new))
        if ended:
            commands.append(EndText(self.run_id))
        self._tell(*commands)

    def _tell(self, *commands: Command) -> None:
        """Send commands to the workers; if the stream does not run but can go on now, ask the keeper for a run."""
        if self._cancelled or self.ended:
            return
        if self.run_id:
            for command in commands:
                self._send(command)
        elif self.is_runnable:
            self._keeper.run(self)

    def _fit_max_frames(self, num_rows: int) -> int:
        return layout.fit_max_frames(self._params.sampling, self._model.checkpoint, num_rows, self._model.max_context)


def check_known_codes(codes: Int16Array, params: SynthesisParams, checkpoint: Checkpoint) -> None:
    """Raise InvalidSynthesis unless a stream can continue after these frames."""
    check_codes("known_codes", codes, checkpoint)
    if len(codes) > params.sampling.max_frames:
        raise InvalidSynthesis(
            "known_codes", f"known_codes has {len(codes)} frames, but max_frames is {params.sampling.max_frames}"
        )
