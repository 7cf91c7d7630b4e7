"""Decides which streams end although the model does not end them: those that have all the frames they may have, and
those that no longer speak their text."""

from collections.abc import Iterator, Sequence

from sonorant.engine.talker.schedule.runaway import GRACE_FRAMES, Repetition
from sonorant.engine.talker.schedule.stream import TalkerStream
from sonorant.engine.types import FinishReason, Int16Array


def is_at_limit(stream: TalkerStream) -> bool:
    return stream.num_frames >= min(stream.request.sampling.max_frames, stream.runaway_at)


def end_at_limit(stream: TalkerStream) -> tuple[FinishReason, str]:
    """Return the reason for the end of a stream at its limit, and the detail for its EndStream."""
    if stream.num_frames >= stream.request.sampling.max_frames:
        return FinishReason.MAX_FRAMES, ""
    limit = f"{GRACE_FRAMES} + {stream.frames_per_token} per token"
    return FinishReason.RUNAWAY, _runaway(stream, f"which is the limit ({limit})")


class RunawaySuspects:
    """Streams with at least half of the frames that would make them runaways. Watches their frames for repetitions."""

    def __init__(self, max_repeated_frames: int) -> None:
        self._max_repeated_frames = max_repeated_frames
        self._streams: dict[int, TalkerStream] = {}

    def add(self, stream: TalkerStream) -> None:
        stream.repetition = stream.repetition or Repetition()
        self._streams[stream.stream_id] = stream

    def drop(self, stream: TalkerStream) -> None:
        """Forget a stream that has ended, if it is a suspect."""
        self._streams.pop(stream.stream_id, None)

    def repeating(self, made: Sequence[TalkerStream], codes: Int16Array) -> Iterator[tuple[TalkerStream, str]]:
        """Yield streams that must end as runaways, each with its detail, given the frames made [rows, codebooks]."""
        if not self._streams:
            return
        for stream, code in zip(made, codes[:, 0].tolist(), strict=True):
            if stream.stream_id in self._streams and stream.repetition is not None:
                num_repeated = stream.repetition.add(code)
                if num_repeated >= self._max_repeated_frames:
                    yield stream, _runaway(stream, f"the last {num_repeated} of them repeating what came before")


def _runaway(stream: TalkerStream, sign: str) -> str:
    return f"the model made {stream.num_frames} frames for {stream.num_text_tokens} text tokens, {sign}"
