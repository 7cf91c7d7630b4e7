"""Finds where in their texts streams are, for those that want to know when each word is spoken."""

from collections.abc import Sequence

import numpy as np

from sonorant.engine.ipc.messages import TextPositions
from sonorant.engine.talker.schedule.stream import NOT_WATCHED, TalkerStream
from sonorant.engine.talker.schedule.text_tracker import TextTracker
from sonorant.engine.types import Float32Array


class TimedText:
    def __init__(self, num_slots: int) -> None:
        self._tracker = TextTracker(num_slots)

    def begin(self, stream: TalkerStream) -> None:
        """Start to watch a stream that has got its slot, if it wants its positions."""
        if (position := stream.request.times_text_from) is not None:
            self._tracker.begin(stream.slot, position)
            stream.watched = stream.plan.text_row + self._tracker.windows([stream.slot])[0]

    def advance(
        self, first: Sequence[TalkerStream], watched: Sequence[TalkerStream], logits: Float32Array
    ) -> TextPositions | None:
        """Return the positions of the frames that a step made, or None if no stream wants them.

        `first` are the streams whose frame was made with the prompt: its position is where the stream begins, since
        before the first word it is silent. `watched` are those of the others that want to know; logits
        [watched, WINDOW], or none if the model has no such head. Send the positions before the frames, so that Code2Wav
        can pass them on ahead of the audio.
        """
        begun = [stream for stream in first if stream.watched != NOT_WATCHED]
        if not len(logits):
            watched = []
        if watched:
            self._tracker.advance(
                [stream.slot for stream in watched],
                # Text tokens in rows after that of this frame are not there yet.
                [min(s.num_text_tokens, s.first_position + s.num_frames - s.plan.text_row + 1) for s in watched],
                logits,
            )
        if not (located := [*begun, *watched]):
            return None
        slots = [stream.slot for stream in located]
        for stream, window in zip(located, self._tracker.windows(slots), strict=True):
            stream.watched = stream.plan.text_row + window
        return TextPositions(
            np.array([stream.stream_id for stream in located], np.int64),
            np.array([stream.num_frames for stream in located], np.int32),
            self._tracker.positions(slots),
        )
