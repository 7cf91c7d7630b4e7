"""Where in their texts the streams are that want to know it: for whoever tells when words are spoken."""

from collections.abc import Sequence

import numpy as np

from sonorant.engine.ipc.messages import TextPositions
from sonorant.engine.talker.stream import NOT_WATCHED, Stream
from sonorant.engine.talker.text_tracker import TextTracker
from sonorant.engine.types import Float32Array


class TimedText:
    def __init__(self, num_slots: int) -> None:
        self._tracker = TextTracker(num_slots)

    def begin(self, stream: Stream) -> None:
        """It has its slot. Does nothing for one that does not want its positions."""
        if (position := stream.open.times_text_from) is not None:
            self._tracker.begin(stream.slot, position)
            stream.watched = stream.plan.text_row + self._tracker.windows([stream.slot])[0]

    def advance(self, first: Sequence[Stream], decoded: Sequence[Stream], logits: Float32Array) -> TextPositions | None:
        """Of the frames that a step made; None if nobody wants to know. `logits` [watched of `decoded`, WINDOW].

        It goes out before the frames, so that Code2Wav passes on where they are in the text ahead of their audio. A
        frame that is made with the prompt, in `first`, is where the stream begins: at the first word it is silent.
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
        if not (told := begun + watched):
            return None
        slots = [stream.slot for stream in told]
        for stream, window in zip(told, self._tracker.windows(slots), strict=True):
            stream.watched = stream.plan.text_row + window
        return TextPositions(
            np.array([stream.stream_id for stream in told], np.int64),
            np.array([stream.num_frames for stream in told], np.int32),
            self._tracker.positions(slots),
        )
