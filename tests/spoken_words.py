"""When each word of some audio is spoken, as pocketsphinx finds it: exact to about 30 ms."""

import re

import numpy as np
import soxr
from pocketsphinx import Decoder

from sonorant.service.audio.pcm import Samples

RATE_HZ = 24_000
ALIGN_RATE_HZ = 16_000

Span = tuple[int, int]  # ms


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def true_spans(text: str, samples: Samples) -> list[Span] | None:
    decoder = Decoder(samprate=ALIGN_RATE_HZ, loglevel="FATAL")
    try:
        decoder.set_align_text(" ".join(words(text)))
    except RuntimeError:  # it does not know a word
        return None
    decoder.start_utt()
    decoder.process_raw(soxr.resample(samples, RATE_HZ, ALIGN_RATE_HZ).astype(np.int16).tobytes(), full_utt=True)
    decoder.end_utt()
    found = [(s.start_frame * 10, s.end_frame * 10 + 10) for s in decoder.seg() or () if s.word[0] not in "<("]
    return found if len(found) == len(words(text)) else None
