from typing import Any

from sonorant.service.audio.writer import AudioSpec
from sonorant.service.pacing.pacer import Credit
from sonorant.tts.v1 import audio_pb2

FRAME = 1920


class Stream:
    def __init__(self) -> None:
        self.granted: list[int] = []

    def grant(self, num_frames: int) -> None:
        self.granted.append(num_frames)


def credit(stream: Any, allowed_frames: int, rate_hz: int = 24_000, speed: float = 1.0) -> Credit:
    audio = AudioSpec(audio_pb2.AUDIO_ENCODING_PCM_S16LE, rate_hz, 20, speed=speed)
    return Credit(stream, allowed_frames, audio, FRAME)


def test_as_much_is_granted_as_was_sent() -> None:
    stream = Stream()
    frames = credit(stream, 10)
    frames.extend(0, 0, 10)
    assert stream.granted == []
    frames.extend(3 * FRAME, 4, 10)
    frames.extend(3 * FRAME + FRAME // 2, 5, 10)
    frames.extend(4 * FRAME, 5, 12)
    assert stream.granted == [3, 3]


def test_what_was_before_the_segment_does_not_count() -> None:
    stream = Stream()
    frames = credit(stream, 4)
    frames.begin(100 * FRAME, 100)
    frames.extend(101 * FRAME, 104, 10)
    assert stream.granted == [7]


def test_rate_and_speed_of_the_wire_are_reckoned_with() -> None:
    stream = Stream()
    credit(stream, 0, rate_hz=8000, speed=2.0).extend(FRAME, 100, 0)
    assert stream.granted == [6]


def test_padding_is_nothing_that_the_engine_made() -> None:
    stream = Stream()
    credit(stream, 0).extend(5 * FRAME, 3, 0)
    assert stream.granted == [3]
