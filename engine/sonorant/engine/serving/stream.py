"""An engine stream: runs its text where its keeper has room for it, and queues its audio for the caller.

It keeps everything that other workers need to continue it (its text, the codes of the delivered frames), so it outlives
its workers. It knows nothing of them; its keeper runs it where there is room.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sonorant.engine.errors import InvalidSynthesis
from sonorant.engine.ipc.messages import CancelStream, EndText, GrantCredit, OpenStream, PushText
from sonorant.engine.prompt.layout import PromptLayout, fit_max_frames, too_many_tokens
from sonorant.engine.prompt.tokenizer import TokenStream
from sonorant.engine.serving.keeping import Keeper, KeptStream, Send, local_end
from sonorant.engine.serving.model import Model
from sonorant.engine.serving.text_times import TextTimes
from sonorant.engine.types import FinishReason, Int16Array, PcmChunk, PromptPlan, StreamEnd, SynthesisParams

GRANT_LUMP_FRAMES = 8
MAX_CHARS_PER_POSITION = 16  # longer text is refused before it is tokenized; English has about 5 per token


@dataclass(frozen=True, slots=True)
class Opening:
    """What a stream is opened with; see `Engine.open`."""

    params: SynthesisParams
    prompt: PromptLayout
    credit_frames: int
    known_codes: Int16Array | None  # [frames, codebooks] of frames made before; the stream begins after them
    outlives_workers: bool
    caller: int  # slots are shared out among callers; 0 is nobody in particular
    in_turn: bool
    is_background: bool


class StreamText:
    """Text is pushed in pieces. The first tokens become a prompt; the others trail it, one for each frame."""

    def __init__(self, params: SynthesisParams, prompt: PromptLayout, model: Model, num_known_frames: int) -> None:
        self.plan: PromptPlan | None = None  # the prompt, once there is text for it
        self.sampling = params.sampling  # with as many frames as fit beside the prompt
        self.ended = False
        self.times: TextTimes | None = None  # if asked for, and if something is known of the known frames, too
        positions, told = params.times_text, params.times_told
        if positions is not None and (told or len(positions) == num_known_frames):
            self.times = TextTimes(model.tokenizer, prompt.language, 1000 / model.info.frame_rate_hz, positions, told)
        self._model = model
        self._prompt = prompt
        # By how many rows the prompt has
        self._fit_max_frames = partial(fit_max_frames, params.sampling, model.checkpoint, model.info.max_context)
        self._streaming = not params.non_streaming_mode
        self._tokens = TokenStream(model.tokenizer, None if self.times is None else self.times.offsets, prompt.language)
        self._num_chars = 0
        self._last_spoken_char: int | None = None  # index of the last letter or digit of the text
        self._ids: list[int] = []  # of all the text
        self._trailing: list[int] = []  # text ids after the plan's rows

    def push(self, text: str, *, flushes: bool = False, is_last: bool = False) -> tuple[int, ...]:
        """Add text. With `flushes`, also release what is held back because more text could change it; with `is_last`,
        that as well, and end the text. Return what trails a prompt that there was before.

        Raises InvalidSynthesis if the text grows too long; then it must not be used any more.
        """
        if self.ended:
            raise RuntimeError("text after end_text")
        max_context = self._model.info.max_context
        self._num_chars += len(text)
        if self._num_chars > (most := MAX_CHARS_PER_POSITION * max_context):
            raise InvalidSynthesis("text", f"the text has more than {most} characters; split it into utterances")
        if (num_after := next((k for k, char in enumerate(reversed(text)) if char.isalnum()), None)) is not None:
            self._last_spoken_char = self._num_chars - 1 - num_after
        ids = self._tokens.push(text)
        if is_last:
            self.ended = True
            ids += self._tokens.end()
        elif flushes:
            ids += self._tokens.flush()
        if is_last and self.times is not None and self._last_spoken_char is not None:
            self.times.end_text(self._last_spoken_char)
        self._ids += ids
        if not self._streaming:  # all of the text is in the prompt
            self._fit_max_frames(self._prompt.min_rows + len(self._ids))
        elif len(self._ids) > max_context:
            raise too_many_tokens(max_context)
        if self.plan is None:
            self.plan = self._prompt.plan(self._ids, ended=is_last)
            if self.plan is not None:
                self._trailing += self.plan.trailing
                self.sampling = replace(self.sampling, max_frames=self._fit_max_frames(len(self.plan.text_ids)))
            return ()
        trailing = (*ids, *(self._prompt.text_end if is_last else ()))
        self._trailing += trailing
        return trailing

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to say so far."""
        return not self._ids

    def is_enough_for(self, frame: int) -> bool:
        """Whether there is text for this frame."""
        return self.plan is not None and (self.ended or frame <= len(self._trailing))

    def opening(self) -> PromptPlan:
        """Return the prompt with all text so far."""
        assert self.plan is not None, "there is text for the first frame"
        if self.plan.num_text_tokens == len(self._ids) and self.plan.text_ended == self.ended:
            return self.plan
        trailing = tuple(self._trailing)
        return replace(self.plan, trailing=trailing, text_ended=self.ended, num_text_tokens=len(self._ids))

    def frames_in_common(self, pieces: Sequence[str | None]) -> int:
        """Return how many first frames depend only on what this text has in common with the text that was pushed.

        `pieces` are the new text as it would be pushed, None for a flush; more text may follow. Frame k depends on the
        prompt and the first k trailing tokens, so the result is 0 if the whole text is in the prompt.
        """
        if self.plan is None or not self._streaming:
            return 0
        tokens, ids = TokenStream(self._model.tokenizer, None, self._prompt.language), list[int]()
        for piece in pieces:
            ids += tokens.flush() if piece is None else tokens.push(piece)
        num_common = next(
            (number for number, (one, other) in enumerate(zip(ids, self._ids, strict=False)) if one != other),
            min(len(ids), len(self._ids)),
        )
        num_in_prompt = len(self._ids) + self.ended - len(self._trailing)
        return max(0, num_common - num_in_prompt + 1)


class StreamCredit:
    """How many frames a stream may have, known ones included. Grants are gathered into lumps, so that a stream which is
    paced by its listener is decoded in chunks."""

    def __init__(self, num_known: int, num_frames: int) -> None:
        """`num_frames`: that may be made after the known ones, before the first grant. Raises ValueError for less than
        one."""
        if num_frames < 1:  # would make the worker fail, and all streams with it
            raise ValueError(f"a stream was opened with a credit of {num_frames} frames; frame 0 needs 1")
        self.granted = self.told = num_known + num_frames  # `told`: as far as the workers know it
        self._lump = min(GRANT_LUMP_FRAMES, num_frames)

    def grant(self, num_frames: int) -> int:
        """Allow so many more. Return how many more the workers are to be told of now."""
        self.granted += num_frames
        # A stream that begins with less credit than a lump uses smaller lumps, until it gets larger grants.
        self._lump = min(GRANT_LUMP_FRAMES, max(self._lump, num_frames))
        if (more := self.granted - self.told) < self._lump:
            return 0
        self.told = self.granted
        return more


class EngineStream(KeptStream):
    """One text and its audio: push text, take events up to a StreamEnd, grant credit for more."""

    def __init__(self, stream_id: int, opening: Opening, model: Model, keeper: Keeper) -> None:
        super().__init__(stream_id, keeper)
        self.when_ended: Callable[[], None] | None = None  # called once, at the end
        self.outlives_workers = opening.outlives_workers
        self._params = opening.params
        self.caller = opening.caller
        self._in_turn = opening.in_turn
        self.is_background = opening.is_background
        self._silence = ""  # set if the stream was cancelled because of silence, not by its caller
        self._codes: list[Int16Array] = []  # [frames, codebooks] each; known or delivered
        if (known := opening.known_codes) is not None and len(known):
            self._codes.append(known)
        self._num_frames = 0 if known is None else len(known)  # of these
        self._text = StreamText(opening.params, opening.prompt, model, self._num_frames)
        self.text_times = self._text.times  # when each part of its text is spoken, if that was asked for
        # Returns the frame in which the last of its text is being said, and the frame in which the token being said was
        # reached. The first is None until all is said, the second from then on; both are None if that is not known.
        self.how_far: Callable[[], tuple[int | None, int | None]] = (
            _unknown if self.text_times is None else self.text_times.how_far
        )
        self._credit = StreamCredit(self._num_frames, opening.credit_frames)
        self._first_opened_s = 0.0

    # For callers

    def push_text(self, text: str, *, flushes: bool = False, is_last: bool = False) -> None:
        """Add text, and with `is_last` end it. A stream that gets all its text so is opened with all of it.

        `flushes`: see `flush_text`. Raises InvalidSynthesis if the text grows too long; then the stream can only be
        cancelled.
        """
        if self._cancelled or self.ended:
            return
        trailing = self._text.push(text, flushes=flushes, is_last=is_last)
        if is_last and self._text.is_empty:
            self._keeper.end(self, local_end(FinishReason.COMPLETED))  # nothing to say
        elif self.run_id:
            if trailing:
                self._send(PushText(self.run_id, trailing))
            if is_last:
                self._send(EndText(self.run_id))
        elif self.is_runnable:
            self._keeper.run(self)

    def flush_text(self) -> None:
        """Speak what is held back because more text could change it, such as the letters of an unfinished word."""
        if not self._text.ended:
            self.push_text("", flushes=True)

    def end_text(self) -> None:
        """No more text comes. Raises InvalidSynthesis as `push_text` does."""
        if not self._text.ended:
            self.push_text("", is_last=True)

    def frames_in_common(self, pieces: Sequence[str | None]) -> int:
        """See `StreamText.frames_in_common`."""
        return self._text.frames_in_common(pieces)

    def grant(self, num_frames: int) -> None:
        """Allow so many more frames to be made. Frames granted and not yet taken must stay within the engine's
        `EngineInfo.credit_frames`."""
        more = self._credit.grant(num_frames)
        if more and self.run_id and not (self._cancelled or self.ended):
            self._send(GrantCredit(self.run_id, more))
        elif more and not self.run_id and self.is_runnable:
            self._keeper.run(self)

    def ready_events(self) -> list[PcmChunk | StreamEnd]:
        """Return all events that `next_event` would return without waiting."""
        return [self._events.get_nowait() for _ in range(self._events.qsize())]

    @property
    def text_positions(self) -> tuple[float, ...]:
        """Where in its text the speech is at the middle of each frame, in tokens; for the frames where it is known."""
        return self._params.times_text or () if self.text_times is None else self.text_times.positions

    # For the keeper

    @property
    def is_runnable(self) -> bool:
        """Whether it has text for the next frame, and credit."""
        has_credit = self._num_frames < self._credit.granted
        return has_credit and not (self._cancelled or self.ended) and self._text.is_enough_for(self._num_frames)

    def begin(self, run_id: int, now_s: float, send: Send) -> None:
        """Begin a run: send the workers an OpenStream that continues after all frames delivered so far."""
        self.run_id, self._send = run_id, send
        self._first_opened_s = self._first_opened_s or now_s
        self._credit.told = self._credit.granted
        if len(self._codes) > 1:
            self._codes = [np.concatenate(self._codes)]
        opening = OpenStream(
            run_id,
            self._text.opening(),
            self._text.sampling,
            self._credit.granted,
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

    def on_silence(self, num_frames: int) -> None:
        """Cancel a stream that stays silent; its end will say why. With `ignore_eos` the stream continues."""
        if not (self._cancelled or self._silence or self._params.sampling.ignore_eos):
            self._silence = f"the model was silent for {num_frames} frames"
            self._send(CancelStream(self.run_id))

    def stop(self) -> bool:
        self.run_id = 0
        return self._cancelled or bool(self._silence)

    def finish(self, end: StreamEnd) -> None:
        if self._silence and end.reason is FinishReason.CANCELLED and not self._cancelled:
            end = replace(end, reason=FinishReason.RUNAWAY, detail=self._silence)
        super().finish(end)
        if self.when_ended is not None:
            when_ended, self.when_ended = self.when_ended, None
            when_ended()

    def _cancel_run(self) -> None:
        self._send(CancelStream(self.run_id))


def _unknown() -> tuple[None, None]:
    """How far a stream is in its text if that is not known."""
    return None, None
