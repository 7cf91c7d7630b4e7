"""The statistics that `done` reports of an utterance: times, lengths, and how much of it was heard."""

import time
from collections.abc import Callable

from sonorant.engine import FinishReason, PcmChunk, StreamBudget, StreamEnd
from sonorant.service.operations.latency import latency_budget
from sonorant.service.pacing.pacer import Playout
from sonorant.service.text.checks import is_speakable
from sonorant.service.utterance.requests import UtteranceSpec
from sonorant.service.utterance.word_times import WordTimes
from sonorant.tts.v1 import synthesis_pb2
from sonorant.tts.v1.latency_pb2 import LatencyBudget


class Statistics:
    def __init__(
        self,
        utterance_id: str,
        spec: UtteranceSpec,
        word_times: WordTimes,
        playout: Playout,
        clock: Callable[[], float] = time.monotonic,
        arrived_s: float | None = None,
    ) -> None:
        """`arrived_s`: when the call arrived, if the text came with it."""
        self.received_before_ms = 0.0  # how much audio the client has from another session
        self.played_ms = 0  # as the client reports
        self.num_frames = 0  # delivered by the engine
        self.received_samples = 0  # of these frames, at the engine's rate
        self.sent_samples = 0  # taken by gRPC, at the rate of the wire
        self._utterance_id = utterance_id
        self._spec = spec
        self._word_times = word_times
        self._playout = playout
        self._clock = clock
        self._arrived_s = arrived_s
        self.first_text_s = 0.0  # when the first speakable text came; 0 = never
        self._first_audio_ms: int | None = None
        self._heard_ms: float | None = None  # set once it cannot change any more
        self._queue_s = 0.0
        self._generation_s = 0.0
        self._encode_s = 0.0  # up to the first audio
        self.num_heals = 0
        self.num_missed_ends = 0
        self._dropped_frames = 0
        self._kept_frames = 0
        self._engine_budget: StreamBudget | None = None  # of the first audio
        self.budget: LatencyBudget | None = None  # set when the first audio goes out

    @property
    def sent_ms(self) -> int:
        return self.sent_samples * 1000 // self._spec.audio.sample_rate_hz

    @property
    def _client_has_ms(self) -> int:
        """While audio of another session is skipped, this is more than what counts as sent."""
        return max(self.sent_ms, int(self.received_before_ms))

    @property
    def received_ms(self) -> int:
        return self.received_samples * 1000 // self._spec.audio.native_rate_hz

    def text(self, text: str) -> None:
        """Note text while none was speakable, as written and as spoken: only the respelling of a sign may be."""
        if is_speakable(text):
            self.first_text_s = self._clock()

    def received(self, chunk: PcmChunk, num_samples: int, *, is_kept: bool = False) -> None:
        """Count a chunk, of which `num_samples` are to be heard."""
        self.num_frames += chunk.num_frames
        self._kept_frames += chunk.num_frames if is_kept else 0
        self.received_samples += num_samples
        self._engine_budget = self._engine_budget or chunk.budget

    def taken_back(self, num_frames: int, num_samples: int) -> None:
        """Count frames that were received and that nobody will hear."""
        self.num_frames -= num_frames
        self.received_samples -= num_samples
        self._dropped_frames += num_frames

    def encoded(self, duration_s: float) -> None:
        """Count the time to encode audio before any went out."""
        self._encode_s += duration_s

    def ended(self, end: StreamEnd) -> None:
        self._queue_s += end.queue_s
        self._generation_s += end.generation_s

    def first_budget(self) -> LatencyBudget | None:
        """Return the latency budget for the first audio, which goes out now; None for a pause, which has none."""
        if self._engine_budget is None:
            return None
        self.budget = latency_budget(
            self.first_text_s,
            self._engine_budget,
            self._encode_s,
            self._clock(),
            self._arrived_s,
            self._spec.recording,
        )
        return self.budget

    def sent(self, num_samples: int) -> None:
        """Count samples that gRPC has taken."""
        if self._first_audio_ms is None:
            self._first_audio_ms = round((self._clock() - self.first_text_s) * 1000)
        self.sent_samples += num_samples
        self._playout.sent(self._utterance_id, num_samples * 1000 / self._spec.audio.sample_rate_hz)

    def silenced(self, played_ms: int | None) -> None:
        """Note that the listener hears no more than `played_ms`; None = no more than by now."""
        if played_ms is None:
            self._heard_ms = self._heard_by_now_ms()
        else:
            self.played_ms = played_ms
            self._heard_ms = min(played_ms, self._client_has_ms)

    def to_proto(self, reason: FinishReason, num_chars: int) -> synthesis_pb2.SynthesisStats:
        if reason == FinishReason.COMPLETED:
            spoken_chars = num_chars
        else:
            heard_ms = self._heard_by_now_ms() if reason == FinishReason.CANCELLED else self._client_has_ms
            spoken_chars = self._word_times.position(heard_ms)
        generation_ms = round(self._generation_s * 1000)
        return synthesis_pb2.SynthesisStats(
            input_chars=num_chars,
            audio_ms=self.received_ms,
            sent_ms=self.sent_ms,
            played_ms=self.played_ms,
            spoken_chars=spoken_chars,
            queue_ms=round(self._queue_s * 1000),
            first_audio_ms=self._first_audio_ms or 0,
            generation_ms=generation_ms,
            codec_frames=self.num_frames,
            kept_frames=self._kept_frames,
            real_time_factor=generation_ms / self.received_ms if self.received_ms else 0.0,
            first_audio_budget=self.budget,
            heals=self.num_heals,
            missed_ends=self.num_missed_ends,
            dropped_frames=self._dropped_frames,
        )

    def _heard_by_now_ms(self) -> float:
        if self._heard_ms is not None:
            return self._heard_ms
        return self._client_has_ms - self._playout.unheard_ms(self._utterance_id)
