"""The receiving side of a session, for programs that play, save or measure what they hear."""

import time
from collections.abc import AsyncIterable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from sonorant.client.errors import from_status
from sonorant.client.events import Event
from sonorant.client.listening.playback import PlaybackMeter
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_COMPLETED, FINISH_REASON_FAILED, UtteranceDone


def _ignore(_message: object) -> None:
    pass


def raise_failure(done: UtteranceDone, _utterance_id: str) -> None:
    """Raise the SpeechError of an utterance that failed."""
    if done.reason == FINISH_REASON_FAILED:
        raise from_status(done.error)


class Listener:
    """Passes audio to `on_audio` as it comes, and measures in `meter` what a listener would have heard of it.

    listener = Listener(PlaybackMeter(session.started.audio.sample_rate_hz), on_audio=file.write)
    done = await listener.read(session)
    print(listener.meter.report().audio_s, done.stats)
    """

    def __init__(
        self,
        meter: PlaybackMeter,
        *,
        on_audio: Callable[[bytes], object] = _ignore,
        on_done: Callable[[UtteranceDone, str], object] = raise_failure,
        on: Mapping[type, Callable[[Any], object]] = MappingProxyType({}),
        measure_sound: bool = False,
    ) -> None:
        """`on_done` gets the UtteranceDone and the id of every utterance; by default, it raises the SpeechError of one
        that failed. `on`: what gets other messages, by their type, such as `{Warning: print}`. `measure_sound`: the
        meter also finds the first audible sound; for PCM_S16LE only."""
        self.meter = meter
        self._on_audio = on_audio
        self._on_done = on_done
        self._on = on
        self._measure_sound = measure_sound

    def text_sent(self) -> None:
        """Call this when text is sent; the meter counts from the first call on."""
        self.meter.text_sent(time.monotonic())

    def take(self, payload: object, utterance_id: str = "") -> None:
        """Take one message of a session, or of `SpeechClient.stream`."""
        match payload:
            case AudioChunk(data=data, num_samples=num_samples):
                samples = data if self._measure_sound and self.meter.wants_samples else b""
                self.meter.audio_arrived(time.monotonic(), num_samples, samples)
                self._on_audio(data)
            case UtteranceDone():
                self._on_done(payload, utterance_id)
            case _:
                self._on.get(type(payload), _ignore)(payload)

    async def read(self, session: AsyncIterable[Event], *, one_utterance: bool = False) -> UtteranceDone:
        """Read the session to its end; return the last `UtteranceDone`, or an empty one if there was none.

        `one_utterance`: also return when the utterance ends early, at a limit for example, while the session is open.
        """
        done = UtteranceDone()
        async for event in session:
            self.take(event.payload, event.utterance_id)
            if isinstance(event.payload, UtteranceDone):
                done = event.payload
                if one_utterance and done.reason != FINISH_REASON_COMPLETED:
                    break
        return done
