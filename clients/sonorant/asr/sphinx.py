"""A recognizer for trials: pocketsphinx with the US English model of its package, on a recording.

It takes the recording in pieces, as from a microphone, with a partial hypothesis every `PARTIAL_EVERY_S`. It is small,
old and often wrong; for real use, pipe a better one into `python -m sonorant.asr`.
"""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
import soxr
from pocketsphinx import Decoder, Endpointer

from sonorant.asr.hypotheses import Hypothesis, HypothesisPart

SAMPLE_RATE_HZ = 16_000
PARTIAL_EVERY_S = 0.1
_SILENCE_AT_END_S = 1.0  # so that the recognizer notices the end of the last words


def recognize(recording: Path) -> Iterator[Hypothesis]:
    """Yield hypotheses, with the time in the recording at which each could have been made; a pause ends a segment."""
    audio = _load(recording)
    # One pass only: a second one is better, but would change words of partial hypotheses after the fact.
    decoder = Decoder(samprate=SAMPLE_RATE_HZ, loglevel="FATAL", fwdflat=False, bestpath=False)
    endpointer = Endpointer(sample_rate=SAMPLE_RATE_HZ)
    frame_bytes = endpointer.frame_bytes
    partial_due_s = 0.0
    for end in range(frame_bytes, len(audio) + 1, frame_bytes):
        was_speech = endpointer.in_speech
        speech = endpointer.process(audio[end - frame_bytes : end])
        time_s = end / 2 / SAMPLE_RATE_HZ
        if speech is None:
            continue
        if not was_speech:
            decoder.start_utt()
        decoder.process_raw(speech)
        if not endpointer.in_speech:
            decoder.end_utt()
            yield Hypothesis((HypothesisPart(_best(decoder)),), time_s, is_final=True)
        elif time_s >= partial_due_s:
            partial_due_s = time_s + PARTIAL_EVERY_S
            yield Hypothesis((HypothesisPart(_best(decoder)),), time_s)


def _best(decoder: Decoder) -> str:
    best = decoder.hyp()
    return best.hypstr if best is not None else ""


def _load(recording: Path) -> bytes:
    """Load a recording as 16-bit mono samples at the recognizer's rate. Raises OSError or ValueError if it cannot be
    read."""
    try:
        samples, rate_hz = soundfile.read(io.BytesIO(recording.read_bytes()), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        why = error.error_string
        raise ValueError(f"{recording} cannot be read: {why}; give a WAV, FLAC, Ogg or MP3 file") from None
    mono = soxr.resample(samples.mean(axis=1), rate_hz, SAMPLE_RATE_HZ)
    padded = np.concatenate([mono, np.zeros(int(_SILENCE_AT_END_S * SAMPLE_RATE_HZ), np.float32)])
    pcm: bytes = (np.clip(padded, -1, 1) * 32767).astype("<i2").tobytes()
    return pcm
