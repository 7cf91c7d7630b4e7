"""One utterance: its text becomes tokens and a prompt here, and its audio waits here to be taken.

Keeps all that workers need to go on with it, so that it outlives them: the ids of its text and the codes of the frames
that were delivered. Knows nothing of workers; whoever keeps it has it run where there is room.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

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
    StreamBudget,
    StreamEnd,
    SynthesisParams,
)

GRANT_LUMP_FRAMES = 8  # so that a stream in step with its listener is not decoded one frame at a time
MAX_CHARS_PER_POSITION = 16  # of text, which is refused beyond before it is looked at; English has about 5 to a token


class EngineStream:
    """One utterance. An async context manager: leaving it cancels what has not ended, and waits for nothing."""

    is_stored = False

    def __init__(
        self,
        stream_id: int,
        params: SynthesisParams,
        keeper: Keeper,
        checkpoint: Checkpoint,
        tokenizer: Tokenizer,
        *,
        max_context: int,
        credit_frames: int,
        known_codes: Int16Array | None = None,
        outlives_workers: bool = True,
        caller: int = 0,
    ) -> None:
        """`known_codes` [frames, codebooks] are of frames that were made before: it begins behind them. `caller`: whose
        it is, for who waits; 0 = nobody's."""
        self.stream_id = stream_id
        self.ended = False  # all of it is made, and waits here to be taken
        self.when_ended: Callable[[], None] | None = None  # called then, once
        self.outlives_workers = outlives_workers
        self.run_id = 0  # what the workers know it by; 0: it does not run
        self._send: Send  # to these workers
        self._params = params
        self._caller = caller
        self._keeper = keeper
        self._checkpoint = checkpoint
        self._max_context = max_context
        self._lump_frames = min(GRANT_LUMP_FRAMES, credit_frames)
        self._tokenizer = tokenizer
        self._tokens = tokenizer.stream()
        self._prompt = layout.PromptLayout(params, checkpoint, tokenizer)
        self._min_rows = self._prompt.min_rows
        self._num_chars = 0
        self._last_spoken_char: int | None = None  # a letter or a digit
        self._ids: list[int] = []  # of all its text
        self._text_ended = False
        self._cancelled = False
        self._silence = ""  # why it was cancelled, if not by its caller
        # What it would be opened with now.
        self._plan: PromptPlan | None = None
        self._trailing: list[int] = []  # text ids behind the plan's rows
        self._sampling = params.sampling
        self._codes: list[Int16Array] = [] if known_codes is None else [known_codes]  # [frames, codebooks] each
        self._num_frames = 0 if known_codes is None else len(known_codes)  # delivered, here or before
        self.text_times: TextTimes | None = None  # asked for, and known of the known frames, too
        if params.times_text is not None and len(params.times_text) == self._num_frames:
            self.text_times = TextTimes(tokenizer, 1000 / checkpoint.frame_rate_hz, params.times_text)
        self._credit_frames = self._num_frames + credit_frames  # that may be made, from the first on
        self._granted_frames = 0  # not yet among them
        self._first_opened_s = 0.0
        self._was_heard = False  # here
        self._events: asyncio.Queue[PcmChunk | StreamEnd] = asyncio.Queue()  # bounded by credit

    # For callers

    def push_text(self, text: str) -> None:
        """Add text. Raises InvalidSynthesis if the utterance grows too long; it can only be cancelled then."""
        if self._cancelled or self.ended:
            return
        if self._text_ended:
            raise RuntimeError("text after end_text")
        self._num_chars += len(text)
        if self._num_chars > MAX_CHARS_PER_POSITION * self._max_context:
            raise InvalidSynthesis(
                "text",
                f"the text has more than {MAX_CHARS_PER_POSITION * self._max_context} characters; split it into "
                "utterances",
            )
        if self.text_times is not None:
            self.text_times.offsets.push(text)
            if num_spoken := len(text) - next((k for k, c in enumerate(reversed(text)) if c.isalnum()), len(text)):
                self._last_spoken_char = self._num_chars - len(text) + num_spoken - 1
        self._take(self._tokens.push(text))

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
        self._text_ended = True
        ids = self._tokens.end()
        if not ids and not self._ids:
            self._keeper.end(self, local_end(FinishReason.COMPLETED))  # nothing to say
            return
        self._take(ids, ended=True)
        if self.text_times is not None and self._last_spoken_char is not None:
            self.text_times.end_text(self._last_spoken_char)

    def frames_in_common(self, pieces: Sequence[str | None]) -> int:
        """So many first frames know nothing but what this text has in common with the one that was pushed.

        Pieces are as pushed, None where the text was flushed; more may follow them. Frame k is made of the prompt and
        the k tokens that trail it, so where the whole text is in the prompt there are none.
        """
        if self._plan is None or self._params.non_streaming_mode:
            return 0
        tokens, ids = self._tokenizer.stream(), list[int]()
        for piece in pieces:
            ids += tokens.flush() if piece is None else tokens.push(piece)
        num_common = next(
            (number for number, (one, other) in enumerate(zip(ids, self._ids, strict=False)) if one != other),
            min(len(ids), len(self._ids)),
        )
        num_in_prompt = len(self._ids) + self._text_ended - len(self._trailing)
        return max(0, num_common - num_in_prompt + 1)

    def grant(self, num_frames: int) -> None:
        """So many more frames may be made. What was granted and not taken stays within `EngineInfo.credit_frames`."""
        self._granted_frames += num_frames
        # Who begins with less credit than a lump waits for less, until it is given more at once.
        self._lump_frames = min(GRANT_LUMP_FRAMES, max(self._lump_frames, num_frames))
        if self._granted_frames < self._lump_frames:
            return
        num_frames = self._granted_frames
        self._use_grants()
        self._tell(GrantCredit(self.run_id, num_frames))

    def cancel(self) -> None:
        """Stop. No more audio comes, the end does. Does nothing after the end or a second time."""
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
        """The next chunk in order, or the end: exactly one, after which this must not be called again."""
        return await self._events.get()

    def ready_events(self) -> list[PcmChunk | StreamEnd]:
        """What `next_event` would return without a wait, all of it."""
        return [self._events.get_nowait() for _ in range(self._events.qsize())]

    @property
    def text_positions(self) -> tuple[float, ...]:
        """Where in its text it is at the middle of each frame, in tokens; as far as it is known."""
        return self._params.times_text or () if self.text_times is None else self.text_times.positions

    @property
    def said_at(self) -> int | None:
        """The frame in which the last of its text is being said; None: not yet, or nobody knows."""
        return None if self.text_times is None else self.text_times.said_at

    async def __aenter__(self) -> "EngineStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    # For the keeper

    @property
    def was_heard(self) -> bool:
        """Some of its audio has come out of workers of ours."""
        return self._was_heard

    @property
    def can_go_on(self) -> bool:
        """With text for the next frame, and credit."""
        if self._plan is None or self._cancelled or self.ended:
            return False
        has_text = self._text_ended or self._num_frames <= len(self._trailing)
        return has_text and self._num_frames < self._credit_frames + self._granted_frames

    def begin(self, run_id: int, now_s: float, send: Send) -> None:
        """It runs from now on with the workers that `send` reaches: it opens itself behind all that was delivered."""
        assert self._plan is not None
        self.run_id, self._send = run_id, send
        self._first_opened_s = self._first_opened_s or now_s
        self._use_grants()
        plan = replace(
            self._plan,
            trailing=tuple(self._trailing),
            text_ended=self._text_ended,
            num_text_tokens=len(self._ids),
        )
        opening = OpenStream(
            run_id,
            plan,
            self._sampling,
            self._credit_frames,
            now_s if self._was_heard else self._first_opened_s,
            self._params.x_vector,
            self._params.reference_codes,
            self._known_codes(),
            None if self.text_times is None else self.text_times.go_on_at(self._num_frames),
            self._caller,
        )
        send(opening)

    def deliver(self, chunk: PcmChunk, budget: StreamBudget | None) -> None:
        """Audio from the workers; `budget` tells of the first of this run."""
        self._codes.append(chunk.codes)
        self._num_frames += chunk.num_frames
        if not self._was_heard and budget is not None:
            chunk = replace(chunk, budget=budget)
        self._was_heard = True
        if not self._cancelled:
            self._events.put_nowait(chunk)

    def on_position(self, frame: int, position: float) -> None:
        """How far in its text it is at the middle of a frame, before its audio comes."""
        assert self.text_times is not None, "others do not ask for it"
        self.text_times.tell(frame, position)

    def on_silence(self, num_frames: int) -> None:
        """Nothing more is coming: the stream is cancelled, and its end will say why. One that must not end goes on."""
        if not (self._cancelled or self._silence or self._params.sampling.ignore_eos):
            self._silence = f"the model was silent for {num_frames} frames"
            self._send(CancelStream(self.run_id))

    def stop(self) -> bool:
        """It runs no more: its workers are gone, or have given its slot away. True if it has been cancelled."""
        self.run_id = 0
        return self._cancelled or bool(self._silence)

    def goes_on(self, end: StreamEnd) -> bool:
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

    def _take(self, ids: list[int], ended: bool = False) -> None:
        self._ids += ids
        if self.text_times is not None:
            self.text_times.offsets.add(ids)
        if self._params.non_streaming_mode:
            self._fit_max_frames(self._min_rows + len(self._ids))
        else:
            layout.check_num_tokens(len(self._ids), self._max_context)
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
        """The workers, of what has changed, or the keeper, if it can go on now."""
        if self._cancelled or self.ended:
            return
        if self.run_id:
            for command in commands:
                self._send(command)
        elif self.can_go_on:
            self._keeper.run(self)

    def _use_grants(self) -> None:
        self._credit_frames += self._granted_frames
        self._granted_frames = 0

    def _known_codes(self) -> Int16Array | None:
        if len(self._codes) > 1:
            self._codes = [np.concatenate(self._codes)]
        return self._codes[0] if self._codes else None

    def _fit_max_frames(self, num_rows: int) -> int:
        return layout.fit_max_frames(self._params.sampling, self._checkpoint, num_rows, self._max_context)


def check_known_codes(codes: Int16Array, params: SynthesisParams, checkpoint: Checkpoint) -> None:
    """Raise InvalidSynthesis unless a stream can go on behind these frames."""
    check_codes("known_codes", codes, checkpoint)
    if len(codes) > params.sampling.max_frames:
        raise InvalidSynthesis(
            "known_codes", f"{len(codes)} frames are known, and max_frames is {params.sampling.max_frames}"
        )
