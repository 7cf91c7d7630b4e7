"""Which slots of the runner are free: some for live streams, some for stored ones. Pure."""

from collections.abc import Collection

from sonorant.engine.code2wav.schedule.stream import NO_SLOT, DecodedStream


class Slots:
    def __init__(self, num_live: int, num_stored: int) -> None:
        self.count = num_live + num_stored
        self._free_live = list(reversed(range(num_live)))
        self._free_stored = list(reversed(range(num_live, self.count)))

    def has_free(self, stream: DecodedStream) -> bool:
        """Whether there is a free slot of the stream's kind."""
        return bool(self._free_for(stream))

    def take(self, stream: DecodedStream) -> int:
        """Give the stream a free slot, and return it."""
        stream.slot = self._free_for(stream).pop()
        return stream.slot

    def give_back(self, stream: DecodedStream) -> None:
        if stream.slot != NO_SLOT:
            self._free_for(stream).append(stream.slot)

    def _free_for(self, stream: DecodedStream) -> list[int]:
        return self._free_stored if stream.is_stored else self._free_live

    def check_conservation(self, streams: Collection[DecodedStream]) -> None:
        """Raise RuntimeError unless every slot is either free or used by one of the streams."""
        num_used = sum(stream.slot != NO_SLOT for stream in streams)
        num_free = len(self._free_live) + len(self._free_stored)
        if num_used + num_free != self.count:
            raise RuntimeError(f"slots leaked: {num_used} used and {num_free} free of {self.count}")
