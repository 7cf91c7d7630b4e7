"""The streams that start a frame in each step, and the columns of their rows. Pure.

The columns are kept from step to step and advanced all at once: a step may have two thousand rows, and to build each
anew would take a notable part of the step.
"""

from collections.abc import Collection, Iterator

import numpy as np

from sonorant.engine.talker.schedule.rows import DecodeRow, DecodeRows
from sonorant.engine.talker.schedule.stream import TalkerStream

SLOT, TEXT_ID, POSITION, FRAME, ALLOW_EOS, WATCHED = range(len(DecodeRow._fields))
NO_ROWS = DecodeRows.of([])


class DecodingStreams(Collection[TalkerStream]):
    """Iterates over the streams in the order of their rows: interactive ones, then background ones.

    In each of the two parts the order changes when a stream comes or goes.
    """

    def __init__(self, num_slots: int, pad_text_id: int) -> None:
        self._columns = np.empty((len(DecodeRow._fields), num_slots), np.int64)
        self._eos_from = np.empty(num_slots, np.int64)
        self._stop_at = np.empty(num_slots, np.int64)
        self._pad_text_id = pad_text_id
        self.num_interactive = 0  # their rows come first
        self._streams: list[TalkerStream] = []
        self._rows: dict[int, int] = {}  # by stream id
        self._reading: dict[int, TalkerStream] = {}  # those with text ids still to be fed

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[TalkerStream]:
        return iter(self._streams)

    def __contains__(self, stream: object) -> bool:
        return isinstance(stream, TalkerStream) and stream.stream_id in self._rows

    def add(self, stream: TalkerStream) -> None:
        """Go on with frame `num_started` of a stream, which may be made now."""
        row = len(self._streams)
        self._streams.append(stream)
        if not stream.is_background:
            if self.num_interactive < row:
                self._move(self.num_interactive, row)
                row = self.num_interactive
                self._streams[row] = stream
            self.num_interactive += 1
        self._rows[stream.stream_id] = row
        frame = stream.num_started
        self._columns[:, row] = (
            stream.slot, self._pad_text_id, stream.first_position + frame, frame, 0, stream.watched
        )  # fmt: skip
        self._eos_from[row], self._stop_at[row] = stream.eos_from, stream.stop_at
        if frame <= len(stream.trailing):
            self._reading[stream.stream_id] = stream

    def discard(self, stream: TalkerStream) -> None:
        """Remove a stream, if it is there. The last one of its part takes its row."""
        row = self._rows.pop(stream.stream_id, None)
        if row is None:
            return
        self._reading.pop(stream.stream_id, None)
        if row < self.num_interactive:
            self.num_interactive -= 1
            self._move(self.num_interactive, row)
            row = self.num_interactive
        self._move(len(self._streams) - 1, row)
        self._streams.pop()

    def _move(self, row: int, to: int) -> None:
        if row == to:
            return
        stream = self._streams[to] = self._streams[row]
        self._rows[stream.stream_id] = to
        self._columns[:, to] = self._columns[:, row]
        self._eos_from[to], self._stop_at[to] = self._eos_from[row], self._stop_at[row]

    def changed(self, stream: TalkerStream) -> None:
        """Note that the stream's limits or `watched` may have changed. Its text may only have been added to."""
        row = self._rows.get(stream.stream_id)
        if row is not None:
            self._eos_from[row], self._stop_at[row] = stream.eos_from, stream.stop_at
            self._columns[WATCHED, row] = stream.watched

    def take_rows(self, with_background: bool = True) -> tuple[DecodeRows, list[TalkerStream]]:
        """Return the rows of the next step and their streams. Those that may not make a frame after it leave."""
        count = len(self._streams) if with_background else self.num_interactive
        if not count:
            return NO_ROWS, []
        for stream in list(self._reading.values()):
            row = self._rows[stream.stream_id]
            place = int(self._columns[FRAME, row]) - 1
            if place < len(stream.trailing):
                self._columns[TEXT_ID, row] = stream.trailing[place]
            else:  # its text has ended, or it would not be here
                self._columns[TEXT_ID, row] = self._pad_text_id
                del self._reading[stream.stream_id]
        columns = self._columns[:, :count]
        np.greater_equal(columns[FRAME], self._eos_from[:count], out=columns[ALLOW_EOS], casting="unsafe")
        rows, streams = DecodeRows(columns.copy()), self._streams[:count]
        columns[POSITION : FRAME + 1] += 1
        are_over = columns[FRAME] >= self._stop_at[:count]
        if are_over.any():
            frames = columns[FRAME].copy()
            for row in np.flatnonzero(are_over).tolist():
                streams[row].num_started = int(frames[row])
                self.discard(streams[row])
        return rows, streams
