"""The phrase cache: codes and sound of phrases that were spoken and may be asked for again, up to some bytes. Pure.

An engine stream is determined by its parameters, its seed and its text. So a request with a fixed seed, or a greedy
one, need not be made twice. A phrase belongs to the caller who had it spoken, or to everybody if the operator had it
spoken: nobody can learn from the time of an answer what others say.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from operator import attrgetter

import numpy as np

from sonorant.engine import (
    FinishReason,
    Int16Array,
    LruCache,
    PcmChunk,
    SamplingParams,
    StreamBudget,
    StreamEnd,
    SynthesisParams,
)

MAX_PHRASE_FRAMES = 250  # 20 s; longer texts are hardly said twice
SPOKEN_SHARE = 4  # a quarter of the bytes is for phrases that are being spoken and may be kept
OVERHEAD_BYTES = 512  # of an entry, in addition to its arrays
FIRST_FRAMES, CHUNK_FRAMES = 1, 12  # frames encoded at once: one for a fast start, then as many as a large chunk has

# All field values but the arrays; the `repr` of a dataclass takes several times as long.
_OF_SAMPLING = attrgetter(*(field.name for field in fields(SamplingParams)))
_OF_PARAMS = attrgetter(
    *({field.name for field in fields(SynthesisParams)} - {"sampling", "x_vector", "reference_codes"})
)

EVERYBODY = None
Scope = str | None  # a caller's name


@dataclass(frozen=True, slots=True)
class Phrase:
    codes: Int16Array  # [frames, codebooks]
    samples: Int16Array  # [frames * frame_samples], as they were heard

    @property
    def num_bytes(self) -> int:
        return self.codes.nbytes + self.samples.nbytes + OVERHEAD_BYTES


def receipt(params: SynthesisParams, spoken: Sequence[str | None]) -> bytes:
    """Return a digest of all that determines the codes, in 32 bytes. None in `spoken`: the tail was released there."""
    sampling = params.sampling
    if is_greedy(params):
        sampling = replace(sampling, seed=0)
    text = "".join("\0" if part is None else part for part in spoken).rstrip("\0")
    arrays = [array for array in (params.x_vector, params.reference_codes) if array is not None]
    rest = _OF_SAMPLING(sampling), _OF_PARAMS(params)
    digest = blake2b(repr((rest, text, [array.shape for array in arrays])).encode(), digest_size=32)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


def is_greedy(params: SynthesisParams) -> bool:
    return not (params.sampling.do_sample or params.sampling.subtalker_do_sample)


class Phrases:
    """The most recently used phrases of all callers."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: 0 keeps nothing."""
        self.num_hits = 0
        self.num_misses = 0
        self.is_on = max_bytes > 0
        self._spoken_bytes = 0  # of phrases that are being spoken
        self._max_spoken_bytes = max_bytes // SPOKEN_SHARE
        self._kept: LruCache[tuple[Scope, str, bytes], Phrase] = LruCache(max_bytes - self._max_spoken_bytes)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def num_bytes(self) -> int:
        return self._kept.num_bytes + self._spoken_bytes

    def find(self, scope: Scope, voice_id: str, receipt: bytes) -> Phrase | None:
        return self._kept.get((scope, voice_id, receipt)) or self._kept.get((EVERYBODY, voice_id, receipt))

    def put(self, scope: Scope, voice_id: str, receipt: bytes, phrase: Phrase) -> None:
        self._kept.put((scope, voice_id, receipt), phrase)

    def forget(self, scope: Scope, voice_id: str) -> None:
        """Drop a caller's phrases in a voice that the caller has deleted."""
        self._kept.drop(lambda key: key[:2] == (scope, voice_id))

    def reserve(self, num_bytes: int) -> bool:
        """Take bytes from the share of phrases that are being spoken, and return whether there were enough.

        A negative number gives bytes back.
        """
        if self._spoken_bytes + num_bytes > self._max_spoken_bytes:
            return False
        self._spoken_bytes += num_bytes
        return True


@dataclass(frozen=True, slots=True)
class CallerPhrases:
    """The phrases that one caller may hear."""

    phrases: Phrases
    scope: Scope

    def find(self, voice_id: str, params: SynthesisParams, spoken: Sequence[str | None]) -> Phrase | None:
        return self.phrases.find(self.scope, voice_id, receipt(params, spoken))

    def find_and_count(self, voice_id: str, params: SynthesisParams, spoken: Sequence[str | None]) -> Phrase | None:
        """Find a phrase that is about to be spoken, and count the hit or miss."""
        phrase = self.find(voice_id, params, spoken)
        self.phrases.num_hits += phrase is not None
        self.phrases.num_misses += phrase is None
        return phrase

    def gather(self) -> "SpokenPhrase":
        return SpokenPhrase(self.phrases, self.scope)


class SpokenPhrase:
    """Collects a phrase while it is spoken, to keep it if it is short and comes to its end."""

    def __init__(self, phrases: Phrases, scope: Scope) -> None:
        self._phrases = phrases
        self._scope = scope
        self._chunks: list[PcmChunk] = []
        self._num_bytes = 0
        self._is_given_up = False

    def add(self, chunk: PcmChunk) -> None:
        if self._is_given_up:
            return
        num_bytes = chunk.codes.nbytes + chunk.samples.nbytes
        is_long = chunk.first_frame + chunk.num_frames > MAX_PHRASE_FRAMES
        if is_long or not self._phrases.reserve(num_bytes):
            self.give_up()
            return
        self._num_bytes += num_bytes
        self._chunks.append(chunk)

    def keep(self, voice_id: str, params: SynthesisParams, spoken: Sequence[str | None]) -> None:
        """Keep the phrase, all of which was spoken."""
        chunks = self._chunks
        if chunks and chunks[0].first_frame == 0:
            codes = np.concatenate([chunk.codes for chunk in chunks])
            samples = np.concatenate([chunk.samples for chunk in chunks])
            self._phrases.put(self._scope, voice_id, receipt(params, spoken), Phrase(codes, samples))
        self.give_up()

    def give_up(self) -> None:
        self._is_given_up = True
        self._phrases.reserve(-self._num_bytes)
        self._chunks, self._num_bytes = [], 0


class PhraseStream:
    """Takes the place of an engine stream. All its frames are there, and come as fast as they are taken."""

    ended = True

    def __init__(self, phrase: Phrase, frame_samples: int) -> None:
        self.codes = phrase.codes
        self._phrase = phrase
        self._frame_samples = frame_samples
        self._next_frame = 0

    def push_text(self, text: str, *, is_last: bool = False) -> None:
        """Ignore the text, as it is what the phrase says."""

    def flush_text(self) -> None:
        pass

    def end_text(self) -> None:
        pass

    def grant(self, num_frames: int) -> None:
        pass

    def how_far(self) -> tuple[int | None, int | None]:
        """Return None and None, as it is not known which frames say which words."""
        return None, None

    def frames_in_common(self, spoken: Sequence[str | None]) -> int:
        """Return 0, since it is not known which frames depend on which words."""
        return 0

    def cancel(self) -> None:
        self._next_frame = len(self.codes)

    def ready_events(self) -> list[PcmChunk | StreamEnd]:
        """Return nothing, so that `next_event` is used and a long phrase is encoded as it goes out."""
        return []

    async def next_event(self) -> PcmChunk | StreamEnd:
        first = self._next_frame
        if first == len(self.codes):
            return StreamEnd(FinishReason.COMPLETED, first, 0.0, 0.0)
        stop = self._next_frame = min(first + (CHUNK_FRAMES if first else FIRST_FRAMES), len(self.codes))
        samples = self._phrase.samples[first * self._frame_samples : stop * self._frame_samples]
        budget = StreamBudget(time.monotonic(), *[0.0] * 7) if first == 0 else None
        return PcmChunk(first, stop - first, samples, self.codes[first:stop], budget)
