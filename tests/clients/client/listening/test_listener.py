from collections.abc import AsyncIterator
from typing import Any

import pytest

from sonorant.client.errors import SpeechError
from sonorant.client.events import Event
from sonorant.client.listening.listener import Listener
from sonorant.client.listening.playback import PlaybackMeter
from sonorant.tts.v1.audio_pb2 import AudioChunk
from sonorant.tts.v1.synthesis_pb2 import (
    FINISH_REASON_COMPLETED,
    FINISH_REASON_FAILED,
    FINISH_REASON_MAX_AUDIO,
    UtteranceDone,
    UtteranceStarted,
    Warning,
)

STARTED, WARNING = UtteranceStarted(seed=7), Warning(code="RUNAWAY")
COMPLETED = UtteranceDone(reason=FINISH_REASON_COMPLETED)
LIMITED = UtteranceDone(reason=FINISH_REASON_MAX_AUDIO)
FAILED = UtteranceDone(reason=FINISH_REASON_FAILED, error={"code": 8, "message": "all streams are in use"})


async def session(*payloads: Any) -> AsyncIterator[Event]:
    for payload in payloads:
        yield Event("u1", payload)


def chunk(num_samples: int) -> AudioChunk:
    return AudioChunk(data=b"\1\0" * num_samples, num_samples=num_samples)


async def test_a_session_is_read_to_its_end() -> None:
    told: list[object] = []
    listener = Listener(
        PlaybackMeter(1000),
        on_audio=told.append,
        on_done=lambda done, utterance_id: told.append((utterance_id, done)),
        on={type(STARTED): told.append, type(WARNING): told.append},
    )
    listener.text_sent()
    done = await listener.read(session(STARTED, chunk(2), WARNING, chunk(3), LIMITED, COMPLETED))
    assert done == COMPLETED
    assert told == [STARTED, b"\1\0" * 2, WARNING, b"\1\0" * 3, ("u1", LIMITED), ("u1", COMPLETED)]
    assert listener.meter.report().audio_s == 0.005
    assert listener.meter.report().ttfa_s >= 0


async def test_reading_may_end_after_one_utterance() -> None:
    events = session(LIMITED, COMPLETED)
    assert await Listener(PlaybackMeter(1000)).read(events, one_utterance=True) == LIMITED
    assert [event.payload async for event in events] == [COMPLETED]
    assert await Listener(PlaybackMeter(1000)).read(session(COMPLETED), one_utterance=True) == COMPLETED


async def test_a_failure_is_raised_unless_on_done_takes_it() -> None:
    with pytest.raises(SpeechError, match="all streams"):
        await Listener(PlaybackMeter(1000)).read(session(FAILED))
    assert await Listener(PlaybackMeter(1000), on_done=lambda *_: None).read(session(FAILED)) == FAILED


async def test_a_session_without_text_has_an_empty_done() -> None:
    assert await Listener(PlaybackMeter(1000)).read(session()) == UtteranceDone()
