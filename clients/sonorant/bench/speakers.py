"""The interface of speakers, which speak utterances through a server, each in one protocol."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from sonorant.client.listening.playback import PlaybackMeter

SAMPLE_RATE_HZ = 24_000  # requested, or fixed by the protocol


class SpeakingFailed(Exception):
    """`status` is one word for tables; the message has the details."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


Budget: TypeAlias = Mapping[str, float]  # ms by part of the server's LatencyBudget; empty if the protocol tells none


class Speaker(Protocol):
    async def speak(self, text: str, number: int, meter: PlaybackMeter) -> Budget:
        """Speak the `number`-th utterance, from its first text to its last audio.

        Returns where the server spent the time to the first audio. Raises UtteranceFailed."""

    async def listen(self, text: Callable[[int], str], number: int, meter: PlaybackMeter) -> None:
        """Run the `number`-th session: utterance after utterance at the pace of a listener, until cancelled.

        `text` returns the text of utterance 0, 1, ... Raises UtteranceFailed.
        """
