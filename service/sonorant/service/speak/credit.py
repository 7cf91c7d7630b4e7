"""How much audio the engine may make for one segment: what was sent, and so much ahead of it. Pure."""

from typing import Protocol

from sonorant.service.audio.writer import AudioSpec


class Granted(Protocol):
    def grant(self, num_frames: int) -> None:
        """So many more frames may be made."""


class Credit:
    """Of one stream. What was sent before the segment, and frames received before it, do not count."""

    def __init__(self, stream: Granted, allowed_frames: int, audio: AudioSpec, frame_samples: int) -> None:
        """The stream was opened with `allowed_frames`; `frame_samples` are at the engine's rate."""
        self._stream = stream
        self._allowed_frames = allowed_frames
        self._frames_per_sample = audio.native_rate_hz * audio.speed / (audio.sample_rate_hz * frame_samples)
        self._samples_before = 0
        self._frames_before = 0

    def begin(self, sent_samples: int, num_frames: int) -> None:
        """The turn of the segment has come."""
        self._samples_before = sent_samples
        self._frames_before = num_frames

    def extend(self, sent_samples: int, num_frames: int, ahead_frames: int) -> None:
        """Let the engine be `ahead_frames` ahead of what was sent of all that it made."""
        taken_frames = int((sent_samples - self._samples_before) * self._frames_per_sample)
        # What was padded, or rounded up, is nothing that the engine made.
        taken_frames = min(taken_frames, num_frames - self._frames_before)
        more = taken_frames + ahead_frames - self._allowed_frames
        if more > 0:
            self._stream.grant(more)
            self._allowed_frames += more
