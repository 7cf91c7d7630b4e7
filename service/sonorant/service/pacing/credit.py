"""Grants credit for one segment: the engine may make what was sent, plus some frames ahead. Pure."""

from typing import Protocol

from sonorant.service.audio.writer import AudioSpec


class Granted(Protocol):
    def grant(self, num_frames: int) -> None:
        """Allow this many more frames."""


class Credit:
    """The credit of one stream. Audio sent and frames received before its segment do not count."""

    def __init__(self, stream: Granted, allowed_frames: int, audio: AudioSpec, frame_samples: int) -> None:
        """`allowed_frames`: the credit with which the stream was opened. `frame_samples`: at the engine's rate."""
        self._stream = stream
        self._allowed_frames = allowed_frames
        self._frames_per_sample = audio.native_rate_hz * audio.speed / (audio.sample_rate_hz * frame_samples)
        self._samples_before = 0
        self._frames_before = 0

    def begin(self, sent_samples: int, num_frames: int) -> None:
        """Begin to count: the segment's turn has come."""
        self._samples_before = sent_samples
        self._frames_before = num_frames

    def extend(self, sent_samples: int, num_frames: int, ahead_frames: int) -> None:
        """Let the engine be `ahead_frames` ahead of the frames that were sent."""
        taken_frames = int((sent_samples - self._samples_before) * self._frames_per_sample)
        # Padding and rounding may make the sent audio longer than what the engine made.
        taken_frames = min(taken_frames, num_frames - self._frames_before)
        more = taken_frames + ahead_frames - self._allowed_frames
        if more > 0:
            self._stream.grant(more)
            self._allowed_frames += more
