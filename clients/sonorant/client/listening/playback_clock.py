"""Estimates how much audio a player has played, for players that begin at once and report nothing."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Part:
    """The audio added for one key: when it begins and ends to play, and how much it is."""

    begin_s: float
    end_s: float
    audio_s: float = 0.0


class PlaybackClock:
    """Pieces of audio play in the order in which they were added, each once it is there and the one before it is over.

    `key` says which turn a piece belongs to; turns play one after another.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until_s = 0.0  # when everything added so far is over
        self._unbroken_s = 0.0  # audio added since the player last ran out of audio
        self._parts: dict[str, _Part] = {}

    def add(self, key: str, audio_s: float) -> None:
        now_s = self._now_s()
        if self._until_s <= now_s:
            self._until_s, self._unbroken_s = now_s, 0.0
        part = self._parts.setdefault(key, _Part(self._until_s, self._until_s))
        self._until_s += audio_s
        self._unbroken_s += audio_s
        part.end_s = self._until_s
        part.audio_s += audio_s

    def playback_started(self) -> None:
        """The player reports that it starts only now to play the audio added since it last ran out of audio."""
        start_s = self._until_s - self._unbroken_s
        delay_s = self._now_s() - start_s
        if 0 < delay_s < self._unbroken_s:
            self._until_s += delay_s
            for part in self._parts.values():
                part.begin_s += delay_s if part.begin_s >= start_s else 0.0
                part.end_s += delay_s if part.end_s > start_s else 0.0

    def played_ms(self, key: str) -> int:
        part = self._parts.get(key)
        if part is None:
            return 0
        left_s = max(0.0, part.end_s - self._now_s())
        return round(max(0.0, part.audio_s - left_s) * 1000)

    def late_s(self, key: str) -> float:
        """How much later the turn's next audio will play than if the turn had had no gaps so far."""
        part = self._parts.get(key)
        return max(self._now_s(), part.end_s) - part.begin_s - part.audio_s if part else 0.0

    def remaining_s(self) -> float:
        """Time until everything added so far is over."""
        return max(0.0, self._until_s - self._now_s())

    def forget(self, key: str) -> None:
        self._parts.pop(key, None)

    def drop(self) -> None:
        """The player was emptied."""
        self._until_s = self._now_s()
