"""Decides which rows a step has: pieces of prompts, and frames of streams whose prompts are in. Pure.

* Interactive streams make a frame in every step. Their prompts share a budget of rows per step: a long one is prefilled
  in pieces beside the live streams, without stalling them. Callers take turns here, too.
* Batch streams fill what these leave, so that an interactive stream that comes waits for the step under way at most.
  They have rows only in steps without interactive prompts; and beside interactive frames, only while all rows together
  are so few that the step takes hardly longer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sonorant.engine.talker.schedule.decoding import DecodingStreams
from sonorant.engine.talker.schedule.rows import DecodeRows, PrefillRow
from sonorant.engine.talker.schedule.stream import Stream
from sonorant.engine.talker.schedule.waiting import by_turns


class Rows(NamedTuple):
    prefills: Sequence[PrefillRow]
    first: Sequence[Stream]  # those whose prompts end here, in the order of their rows
    decodes: DecodeRows
    streams: Sequence[Stream]  # of the decode rows


class StepRows:
    def __init__(self, num_slots: int, pad_text_id: int, max_prefill_rows: int, most_rows_with_batch: int) -> None:
        self._max_prefill_rows = max_prefill_rows
        self._most_rows_with_batch = most_rows_with_batch
        self._prefilling: dict[int, Stream] = {}
        self._decoding = DecodingStreams(num_slots, pad_text_id)
        self._batch_prefilling: dict[int, Stream] = {}
        self._batch_decoding = DecodingStreams(num_slots, pad_text_id)

    def prefill(self, stream: Stream) -> None:
        """Begin with the prompt of a stream."""
        (self._batch_prefilling if stream.is_batch else self._prefilling)[stream.stream_id] = stream

    def decode(self, stream: Stream) -> None:
        """Go on with frame `num_started` of a stream, which may be made now."""
        self._decoding_of(stream).add(stream)

    def decodes(self, stream: Stream) -> bool:
        """Whether the stream's next frame may be made."""
        return stream in self._decoding_of(stream)

    def changed(self, stream: Stream) -> None:
        """Note that the stream's limits or `watched` may have changed."""
        self._decoding_of(stream).changed(stream)

    def discard(self, stream: Stream) -> None:
        self._prefilling.pop(stream.stream_id, None)
        self._batch_prefilling.pop(stream.stream_id, None)
        self._decoding_of(stream).discard(stream)

    def _decoding_of(self, stream: Stream) -> DecodingStreams:
        return self._batch_decoding if stream.is_batch else self._decoding

    def take(self) -> Rows:
        """Return the rows of the next step. Streams that may not make a frame after it leave."""
        prompts, budget = self._prefilling, self._max_prefill_rows
        num_left = self._most_rows_with_batch - len(self._decoding) - len(self._batch_decoding)
        with_batch = not prompts and (num_left >= 0 or not self._decoding)
        if with_batch:
            prompts = self._batch_prefilling
            budget = min(budget, num_left) if self._decoding else budget
        prefills, first = _prompt_rows(prompts, budget)
        decodes, streams = self._decoding.take_rows()
        if with_batch and self._batch_decoding:
            batch_decodes, batch_streams = self._batch_decoding.take_rows()
            decodes = DecodeRows(np.concatenate([decodes.columns, batch_decodes.columns], axis=1))
            streams = streams + batch_streams
        return Rows(prefills, first, decodes, streams)


def _prompt_rows(prompts: dict[int, Stream], budget: int) -> tuple[list[PrefillRow], list[Stream]]:
    """Return so many prompt rows, and the streams whose prompts end with them, which leave `prompts`."""
    rows, first = list[PrefillRow](), list[Stream]()
    for stream in by_turns(prompts.values()) if prompts else ():
        if not budget:
            break
        start = stream.num_rows_done
        stop = stream.num_rows_done = min(stream.plan.num_rows, start + budget)
        budget -= stop - start
        rows.append(PrefillRow.of(stream, start, stop))
        if stop == stream.plan.num_rows:
            del prompts[stream.stream_id]
            first.append(stream)
    return rows, first
