"""The streams with frames to decode, so that a turn need not look at all streams. Some are due. The others wait for
more frames, or for other streams, while their listeners have enough to play. Pure; the clock is an argument."""

from collections.abc import Callable

from sonorant.engine.code2wav.schedule.stream import NEVER_S, DecodedStream


class DueStreams:
    def __init__(self, gather_s: float, clock: Callable[[], float]) -> None:
        """`gather_s`: how long a whole chunk waits for those of other streams."""
        self._gather_s = gather_s
        self._clock = clock
        self._due: dict[int, DecodedStream] = {}
        self._early: dict[int, DecodedStream] = {}

    def file(self, stream: DecodedStream, *, is_alone: bool) -> None:
        """Put a stream that has changed where it belongs; nowhere if it has no frames, or if they are being decoded.

        `is_alone`: there are no other streams.
        """
        self.remove(stream)
        if not stream.pending or stream.is_decoding:
            return
        is_first = stream.is_whole and not (stream.num_decoded or stream.is_background)
        if stream.num_unheard > 0 or stream.is_flushed or stream.end or is_first:
            self._due[stream.stream_id] = stream
        elif stream.is_whole or (stream.num_decoded and not stream.is_background):  # else no listener can run dry
            self._early[stream.stream_id] = stream
            if stream.is_whole:
                wait_s = 0.0 if is_alone else self._gather_s
                stream.gathered_s = min(stream.gathered_s, self._clock() + wait_s)

    def remove(self, stream: DecodedStream) -> None:
        self._due.pop(stream.stream_id, None)
        self._early.pop(stream.stream_id, None)

    def candidates(self, now_s: float, latest_s: float) -> list[DecodedStream]:
        """The streams that are due, most urgent first; then those that may go with them, if there are any.

        A listener who has nothing to play after `latest_s` cannot wait.
        """
        due, whole = list(self._due.values()), list[DecodedStream]()
        for stream in self._early.values():
            if stream.dry_s <= latest_s or stream.gathered_s <= now_s:
                due.append(stream)
            elif stream.gathered_s != NEVER_S:
                whole.append(stream)
        due.sort(key=_dry_s)
        return due + whole if due else due

    def urgent(self, latest_s: float) -> list[DecodedStream]:
        """The streams whose listeners have nothing to play after `latest_s`, most urgent first."""
        streams = [stream for each in (self._due, self._early) for stream in each.values() if stream.dry_s <= latest_s]
        return sorted(streams, key=_dry_s)

    def wait_s(self, now_s: float, latest_s: float) -> float | None:
        """How long none of the streams that wait will be due; None if none waits."""
        if not self._early:
            return None
        dry_s = min(stream.dry_s for stream in self._early.values())
        gathered_s = min(stream.gathered_s for stream in self._early.values())
        return min(dry_s - latest_s, gathered_s - now_s)


def _dry_s(stream: DecodedStream) -> float:
    return stream.dry_s
