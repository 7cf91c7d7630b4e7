"""The text of a stream, which may still be coming: its tokens, the prompt they begin, and when it is spoken. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from sonorant.engine.errors import InvalidSynthesis
from sonorant.engine.prompt import layout
from sonorant.engine.prompt.tokenizer import Tokenizer, TokenOffsets, TokenStream
from sonorant.engine.serving.model import Model
from sonorant.engine.types import PromptPlan, SynthesisParams

MAX_CHARS_PER_POSITION = 16  # longer text is refused before it is tokenized; English has about 5 per token
MOST_OF_A_TOKEN = 0.4  # the last token counts as said here: positions stop near its middle, as nothing follows


class StreamText:
    """Text is pushed in pieces. The first tokens become a prompt; the others trail it, one for each frame."""

    def __init__(
        self, params: SynthesisParams, prompt: layout.PromptLayout, model: Model, num_known_frames: int
    ) -> None:
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
        self._fit_max_frames = partial(layout.fit_max_frames, params.sampling, model.checkpoint, model.info.max_context)
        self._streaming = not params.non_streaming_mode
        self._tokens = TokenStream(model.tokenizer, None if self.times is None else self.times.offsets, prompt.language)
        self._num_chars = 0
        self._last_spoken_char: int | None = None  # index of the last letter or digit of the text
        self._ids: list[int] = []  # of all the text
        self._trailing: list[int] = []  # text ids after the plan's rows

    def push(self, text: str, *, is_last: bool = False) -> tuple[int, ...]:
        """Add text, and with `is_last` end it. Return what trails a prompt that there was before.

        Raises InvalidSynthesis if the text grows too long; then it must not be used any more.
        """
        if self.ended:
            raise RuntimeError("text after end_text")
        self._num_chars += len(text)
        if self._num_chars > (most := MAX_CHARS_PER_POSITION * self._model.info.max_context):
            raise InvalidSynthesis("text", f"the text has more than {most} characters; split it into utterances")
        if (num_after := next((k for k, char in enumerate(reversed(text)) if char.isalnum()), None)) is not None:
            self._last_spoken_char = self._num_chars - 1 - num_after
        ids = self._tokens.push(text)
        if is_last:
            self.ended = True
            ids += self._tokens.end()
        trailing = self._take(ids)
        if is_last and self.times is not None and self._last_spoken_char is not None:
            self.times.end_text(self._last_spoken_char)
        return trailing

    def flush(self) -> tuple[int, ...]:
        """Release what is held back because more text could change it. Returns and raises what `push` does."""
        return self._take(self._tokens.flush())

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

    def _take(self, ids: list[int]) -> tuple[int, ...]:
        self._ids += ids
        if self._streaming:
            layout.check_num_tokens(len(self._ids), self._model.info.max_context)
        else:
            self._fit_max_frames(self._prompt.min_rows + len(self._ids))
        if self.plan is None:
            self.plan = self._prompt.plan(self._ids, ended=self.ended)
            if self.plan is not None:
                self._trailing += self.plan.trailing
                self.sampling = replace(self.sampling, max_frames=self._fit_max_frames(len(self.plan.text_ids)))
            return ()
        trailing = self._prompt.column(ids, ended=self.ended)
        self._trailing += trailing
        return trailing


class TextTimes:
    """When each part of a text is spoken, computed from the text positions that the workers send for each frame."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        language: str | None,
        frame_ms: float,
        positions: Iterable[float],
        told: Sequence[tuple[int, float]] = (),
    ) -> None:
        """`positions` are those of the frames made before; `told` stands in for them: see
        `SynthesisParams.times_told`."""
        self.offsets = TokenOffsets(tokenizer, language)
        self._frame_ms = frame_ms
        self._positions = list(positions)  # at the middle of each frame that is known, in tokens
        self._told = told
        self._last = self._positions[-1] if self._positions else 0.0
        self._last_spoken: float | None = None  # position at which all text is said; None while more may come

    @property
    def positions(self) -> tuple[float, ...]:
        """Where in the text the speech is at the middle of each frame, in tokens; for the frames where it is known."""
        return tuple(self._positions)

    def reached_ms(self, char: int) -> float | None:
        """Return when this character of the text begins, in ms of the audio; None while that is not known.

        Times grow with the text. A time is known as soon as the audio of its frame is there, or earlier.
        """
        position = self.offsets.position_of(char)
        frame = bisect_left(self._positions, position)
        if frame == len(self._positions):
            return None
        middle, after = frame + 0.5, self._positions[frame]
        if frame == 0:
            return 0.0
        before = self._positions[frame - 1]
        return max(0.0, (middle - (after - position) / (after - before)) * self._frame_ms)

    def end_text(self, last_char: int) -> None:
        """Note that the text is complete, and that this is its last character that is spoken."""
        self._last_spoken = int(self.offsets.position_of(last_char)) + MOST_OF_A_TOKEN

    def how_far(self) -> tuple[int | None, int | None]:
        """Return the frame in which the last of the text is being said, None if it is not said yet or more text may
        come; and the frame in which the token being said was reached, None if all text is said."""
        if self._last_spoken is None or self._last < self._last_spoken:
            return None, bisect_left(self._positions, int(self._last))
        return bisect_left(self._positions, self._last_spoken), None

    def add_position(self, frame: int, position: float) -> None:
        """Take the position at the middle of a frame, before the frame's audio comes."""
        del self._positions[frame:]
        if (missing := frame - len(self._positions)) > 0:
            self._positions += [self._positions[-1] if self._positions else 0.0] * missing
        self._positions.append(position)
        self._last = position

    def go_on_at(self, frame: int) -> float:
        """Forget positions from this frame on, and return about where the speech is when it continues there."""
        del self._positions[frame:]
        if self._told and len(self._positions) < frame:
            self._positions = self._told_positions(frame)
        self._last = self._positions[-1] if self._positions else 0.0
        return self._last

    def _told_positions(self, num_frames: int) -> list[float]:
        """Return the positions of the first frames from what was told of them. What a caller told need not grow."""
        tokens = [self.offsets.position_of(char) for char, _ in self._told]
        begins_ms = [begin_ms for _, begin_ms in self._told]
        middles_ms = (np.arange(num_frames) + 0.5) * self._frame_ms
        grown = np.maximum.accumulate([0.0, *begins_ms]), np.maximum.accumulate([0.0, *tokens])
        positions: list[float] = np.interp(middles_ms, *grown).tolist()
        return positions
