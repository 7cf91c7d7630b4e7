"""Decides which rows a step has: pieces of prompts, and frames of streams whose prompts are in. Pure.

* Interactive streams make a frame in every step. Their prompts share a budget of rows per step: a long one is prefilled
  in pieces beside the live streams, without stalling them. Callers take turns here, too.
* Background streams fill what these leave, so that an interactive stream that comes waits at most for the step under
  way. They have rows only in steps without interactive prompts; and beside interactive frames, only while all rows
  together are so few that the step takes hardly longer.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sonorant.engine.talker.schedule.decoding import DecodingStreams
from sonorant.engine.talker.schedule.rows import DecodeRows, PrefillRow
from sonorant.engine.talker.schedule.stream import TalkerStream
from sonorant.engine.talker.schedule.waiting import by_turns


class Rows(NamedTuple):
    prefills: Sequence[PrefillRow]
    first: Sequence[TalkerStream]  # those whose prompts end here, in the order of their rows
    decodes: DecodeRows
    streams: Sequence[TalkerStream]  # of the decode rows


class StepRows:
    def __init__(self, num_slots: int, pad_text_id: int, max_prefill_rows: int, most_rows_with_background: int) -> None:
        self._max_prefill_rows = max_prefill_rows
        self._most_rows_with_background = most_rows_with_background
        self._prefilling: dict[int, TalkerStream] = {}
        self._decoding = DecodingStreams(num_slots, pad_text_id)

    def prefill(self, stream: TalkerStream) -> None:
        """Begin with the prompt of a stream."""
        self._prefilling[stream.stream_id] = stream

    def decode(self, stream: TalkerStream) -> None:
        """Go on with frame `num_started` of a stream, which may be made now."""
        self._decoding.add(stream)

    def decodes(self, stream: TalkerStream) -> bool:
        """Whether the stream's next frame may be made."""
        return stream in self._decoding

    def changed(self, stream: TalkerStream) -> None:
        """Note that the stream's limits or `watched` may have changed."""
        self._decoding.changed(stream)

    def discard(self, stream: TalkerStream) -> None:
        self._prefilling.pop(stream.stream_id, None)
        self._decoding.discard(stream)

    def take(self) -> Rows:
        """Return the rows of the next step. Streams that may not make a frame after it leave."""
        prompts = [stream for stream in self._prefilling.values() if not stream.is_background]
        budget = self._max_prefill_rows
        num_left, is_busy = self._most_rows_with_background - len(self._decoding), self._decoding.num_interactive > 0
        with_background = not prompts and (num_left >= 0 or not is_busy)
        if with_background:
            prompts = list(self._prefilling.values())
            budget = min(budget, num_left) if is_busy else budget
        prefills, first = self._prompt_rows(prompts, budget)
        return Rows(prefills, first, *self._decoding.take_rows(with_background))

    def _prompt_rows(self, prompts: Sequence[TalkerStream], budget: int) -> tuple[list[PrefillRow], list[TalkerStream]]:
        """Return so many prompt rows, and the streams whose prompts end with them."""
        rows, first = list[PrefillRow](), list[TalkerStream]()
        for stream in by_turns(prompts) if prompts else ():
            if not budget:
                break
            start = stream.num_rows_done
            stop = stream.num_rows_done = min(stream.plan.num_rows, start + budget)
            budget -= stop - start
            rows.append(PrefillRow.of(stream, start, stop))
            if stop == stream.plan.num_rows:
                del self._prefilling[stream.stream_id]
                first.append(stream)
        return rows, first
