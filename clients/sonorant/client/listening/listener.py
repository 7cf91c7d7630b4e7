"""The receiving side of a session, for programs that play, save or measure what they hear."""

import time
from collections.abc import AsyncIterable, Callable

from sonorant.client.errors import from_status
from sonorant.client.events import ConnectionLost, Event, Resumed
from sonorant.client.listening.playback import PlaybackMeter
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.synthesis_pb2 import (
    FINISH_REASON_COMPLETED,
    FINISH_REASON_FAILED,
    Marks,
    Queued,
    UtteranceDone,
    UtteranceStarted,
    Warning,
)


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
        on_started: Callable[[UtteranceStarted], object] = _ignore,
        on_warning: Callable[[Warning], object] = _ignore,
        on_marks: Callable[[Marks], object] = _ignore,
        on_lost: Callable[[ConnectionLost], object] = _ignore,
        on_resumed: Callable[[Resumed], object] = _ignore,
        on_queued: Callable[[Queued], object] = _ignore,
        on_done: Callable[[UtteranceDone, str], object] = raise_failure,
        measure_sound: bool = False,
    ) -> None:
        """`measure_sound`: the meter also finds the first audible sound; for PCM_S16LE only. `on_done` gets the
        UtteranceDone and the id of every utterance; by default, it raises the SpeechError of one that failed."""
        self.meter = meter
        self._on_audio = on_audio
        self._on_started = on_started
        self._on_warning = on_warning
        self._on_marks = on_marks
        self._on_lost = on_lost
        self._on_resumed = on_resumed
        self._on_queued = on_queued
        self._on_done = on_done
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
            case UtteranceStarted():
                self._on_started(payload)
            case Warning():
                self._on_warning(payload)
            case Marks():
                self._on_marks(payload)
            case ConnectionLost():
                self._on_lost(payload)
            case Resumed():
                self._on_resumed(payload)
            case Queued():
                self._on_queued(payload)
            case UtteranceDone():
                self._on_done(payload, utterance_id)

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
