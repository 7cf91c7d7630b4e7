"""A teacher: libflite, called through ctypes. Its voices sound like robots, and speak at 1,000 times real time.

Needs the shared libraries of flite and of its voices (Debian: `apt install libflite1`). Knows nothing of codec frames.
"""

import ctypes
import re
from collections.abc import Sequence
from ctypes import CDLL, POINTER, RTLD_GLOBAL, Structure, c_char_p, c_float, c_int, c_short, c_void_p, cast
from typing import Any

import numpy as np

from sonorant.training.speakers import Speaker
from sonorant.training.teachers.speech import PHONES, Speech, TeacherUnavailable, played_faster

VOICES = ("rms", "slt")  # those of the custom_voice checkpoint; the first is its default
SAMPLE_RATE_HZ = 16000
F0_DEVIATION = 0.11  # standard deviation of a made speaker's pitch, as a share of the pitch
_TYPED = str.maketrans({"’": "'", "“": '"', "”": '"', "–": "-", "—": "-"})  # one for one, so that spans stay
_PHONE_IDS = {name: index for index, name in enumerate(PHONES)}
_WORD = re.compile(r"\S*[A-Za-z0-9]\S*")


class _Wave(Structure):
    _fields_ = (
        ("type", c_char_p),
        ("sample_rate", c_int),
        ("num_samples", c_int),
        ("num_channels", c_int),
        ("samples", POINTER(c_short)),
    )


class _Voice(Structure):
    _fields_ = (("name", c_char_p), ("features", c_void_p))


class Flite:
    """The process's flite. Not thread-safe, because the library is not."""

    def __init__(self) -> None:
        # The voices use symbols of the language and lexicon libraries, hence the order and RTLD_GLOBAL.
        self._lib = _load("libflite.so.1")
        for name in ("libflite_usenglish.so.1", "libflite_cmulex.so.1"):
            _load(name)
        _declare(self._lib)
        self._lib.flite_init()
        self._voices = {name: _register(name) for name in VOICES}

    def speak(self, texts: Sequence[str], voices: Sequence[str]) -> Sequence[Speech | None]:
        """`voices`: flite's, or made speakers (training.speakers)."""
        return [self._speak(text, voice) for text, voice in zip(texts, voices, strict=True)]

    def _speak(self, text: str, speaker_name: str) -> Speech | None:
        speaker = Speaker.parse(speaker_name)
        if speaker.f0_hz is None:
            return self._synthesize(text, speaker.voice)
        # The speech is then played faster by the formant ratio, so ask flite for lower pitch and longer durations.
        f0_hz = speaker.f0_hz / speaker.formants
        wanted = {
            b"int_f0_target_mean": f0_hz,
            b"int_f0_target_stddev": f0_hz * F0_DEVIATION,
            b"duration_stretch": speaker.stretch * speaker.formants,
        }
        features = cast(self._voice(speaker.voice), POINTER(_Voice)).contents.features
        for name, value in wanted.items():
            self._lib.feat_set_float(features, name, value)
        speech = self._synthesize(text, speaker.voice)
        for name in wanted:
            self._lib.feat_remove(features, name)
        return played_faster(speech, speaker.formants) if speech else None

    def _voice(self, name: str) -> int:
        if name not in self._voices:
            self._voices[name] = _register(name)
        return self._voices[name]

    def _synthesize(self, text: str, voice: str) -> Speech | None:
        utterance = self._lib.flite_synth_text(text.translate(_TYPED).encode("ascii", "ignore"), self._voice(voice))
        if not utterance:
            return None
        try:
            wave = self._lib.utt_wave(utterance)
            if not wave or wave.contents.num_samples == 0:
                return None
            if wave.contents.sample_rate != SAMPLE_RATE_HZ:
                raise TeacherUnavailable(
                    f"voice {voice} speaks at {wave.contents.sample_rate} Hz, not {SAMPLE_RATE_HZ}"
                )
            samples = np.ctypeslib.as_array(wave.contents.samples, (wave.contents.num_samples,)).copy()
            phones, ends_s, words = self._segments(utterance)
            return Speech(samples, SAMPLE_RATE_HZ, phones, ends_s, _spans(text, words))
        finally:
            self._lib.delete_utterance(utterance)

    def _segments(self, utterance: int) -> tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]]:
        lib = self._lib
        phones, ends_s, words = [], [], []
        word, last_token = -1, None
        segment = lib.relation_head(lib.utt_relation(utterance, b"Segment"))
        while segment:
            token = self._token_of(segment)
            if token and not (last_token and lib.item_equal(token, last_token)):
                word, last_token = word + 1, token
            phones.append(_PHONE_IDS.get(lib.item_feat_string(segment, b"name").decode(), 0))
            ends_s.append(lib.item_feat_float(segment, b"end"))
            words.append(word if token else -1)
            segment = lib.item_next(segment)
        return tuple(phones), tuple(ends_s), tuple(words)

    def _token_of(self, segment: int) -> int | None:
        """Segment -> syllable -> word -> whitespace token; None for silence."""
        lib = self._lib
        item: int | None = lib.item_as(segment, b"SylStructure")
        for _ in range(2):
            item = lib.item_parent(item) if item else None
        item = lib.item_as(item, b"Token") if item else None
        return lib.item_parent(item) if item else None


def _spans(text: str, words: Sequence[int]) -> tuple[tuple[int, int] | None, ...]:
    """The characters of each phone's word; none at all if flite splits the text in another way than whitespace does."""
    found = [_without_punctuation(match) for match in _WORD.finditer(text)]
    same = max(words, default=-1) + 1 == len(found)
    return tuple(found[word] if same and word >= 0 else None for word in words)


def _without_punctuation(word: re.Match[str]) -> tuple[int, int]:
    begin, end = word.span()
    while not word.string[end - 1].isalnum():
        end -= 1
    return begin, end


def _load(name: str) -> CDLL:
    try:
        return CDLL(name, mode=RTLD_GLOBAL)
    except OSError as error:
        raise TeacherUnavailable(f"{name} cannot be loaded ({error}); on Debian: apt install libflite1") from error


def _register(voice: str) -> int:
    register = _load(f"libflite_cmu_us_{voice}.so.1")[f"register_cmu_us_{voice}"]
    register.restype, register.argtypes = c_void_p, (c_char_p,)
    return int(register(None))


def _declare(lib: CDLL) -> None:
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "flite_init": (c_int, ()),
        "feat_set_float": (None, (c_void_p, c_char_p, c_float)),
        "feat_remove": (c_int, (c_void_p, c_char_p)),
        "flite_synth_text": (c_void_p, (c_char_p, c_void_p)),
        "utt_wave": (POINTER(_Wave), (c_void_p,)),
        "utt_relation": (c_void_p, (c_void_p, c_char_p)),
        "delete_utterance": (None, (c_void_p,)),
        "relation_head": (c_void_p, (c_void_p,)),
        "item_next": (c_void_p, (c_void_p,)),
        "item_parent": (c_void_p, (c_void_p,)),
        "item_as": (c_void_p, (c_void_p, c_char_p)),
        "item_equal": (c_int, (c_void_p, c_void_p)),
        "item_feat_string": (ctypes.c_char_p, (c_void_p, c_char_p)),
        "item_feat_float": (c_float, (c_void_p, c_char_p)),
    }
    for name, (result, arguments) in signatures.items():
        function = lib[name]
        function.restype, function.argtypes = result, arguments
        setattr(lib, name, function)
