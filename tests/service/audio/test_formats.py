"""Which audio may be asked for, and what an unset field becomes."""

from dataclasses import replace
from typing import Any

import pytest

from sonorant.service.audio import opus
from sonorant.service.audio.formats import RATES_HZ, check_audio, served_encodings
from sonorant.service.audio.writer import AudioSpec, AudioWriter
from sonorant.service.errors import InvalidField, NotServed
from sonorant.tts.v1 import audio_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.sounds import voiced

PCM = audio_pb2.AUDIO_ENCODING_PCM_S16LE
WAV = audio_pb2.AUDIO_ENCODING_WAV
FLAC = audio_pb2.AUDIO_ENCODING_FLAC
CODES = audio_pb2.AUDIO_ENCODING_CODES
MULAW = audio_pb2.AUDIO_ENCODING_MULAW
ALAW = audio_pb2.AUDIO_ENCODING_ALAW
OPUS = audio_pb2.AUDIO_ENCODING_OPUS
OGG_OPUS = audio_pb2.AUDIO_ENCODING_OGG_OPUS


def check(*, whole: bool = False, speed: float | None = None, gain_db: float | None = None, **audio: Any) -> AudioSpec:
    config = synthesis_pb2.SynthesisConfig(audio=audio, speed=speed, volume_gain_db=gain_db)
    return check_audio(config, FakeEngine().info, "config", whole=whole)


@pytest.mark.parametrize(
    ("audio", "spec"),
    [
        ({}, AudioSpec(PCM, 24_000, 80)),
        ({"encoding": WAV, "sample_rate_hz": 48_000}, AudioSpec(WAV, 48_000, 20)),
        ({"encoding": MULAW}, AudioSpec(MULAW, 8_000, 20)),
        ({"encoding": ALAW, "sample_rate_hz": 8_000, "frame_duration_ms": 80}, AudioSpec(ALAW, 8_000, 80)),
        ({"speed": 1.5}, AudioSpec(PCM, 24_000, 20, speed=1.5)),
        ({"encoding": OPUS}, AudioSpec(OPUS, 24_000, 20, 32_000)),
        ({"encoding": OGG_OPUS}, AudioSpec(OGG_OPUS, 24_000, 80, 32_000)),
        ({"encoding": OGG_OPUS, "sample_rate_hz": 16_000}, AudioSpec(OGG_OPUS, 16_000, 20, 32_000)),
        ({"encoding": OPUS, "frame_duration_ms": 60, "bitrate_bps": 9_000}, AudioSpec(OPUS, 24_000, 60, 9_000)),
    ],
)
def test_what_is_left_out_is_resolved(audio: dict[str, Any], spec: AudioSpec) -> None:
    may_join = "frame_duration_ms" not in audio and spec.encoding != OPUS
    starts_short = (spec.sample_rate_hz, spec.frame_duration_ms) == (24_000, 80)
    assert check(**audio) == replace(spec, may_join=may_join, starts_short=starts_short)


@pytest.mark.parametrize("encoding", (PCM, WAV, MULAW, OPUS, OGG_OPUS))
@pytest.mark.parametrize("speed", (0.5, 1.0, 2.0))
def test_the_first_codec_frame_is_heard_before_the_second_is_made(encoding: int, speed: float) -> None:
    rates_hz = {MULAW: (0, 8_000), OPUS: opus.RATES_HZ, OGG_OPUS: opus.RATES_HZ}.get(encoding, RATES_HZ)
    for rate_hz in rates_hz:
        writer = AudioWriter(check(encoding=encoding, sample_rate_hz=rate_hz, speed=speed))
        assert writer.push(voiced(150, 1920)), rate_hz


@pytest.mark.parametrize("encoding", served_encodings())
@pytest.mark.parametrize("rate_hz", (0, 8_000))
@pytest.mark.parametrize("whole", (False, True))
def test_every_encoding_is_served_in_streams_or_whole(encoding: int, rate_hz: int, whole: bool) -> None:
    if encoding == (OPUS if whole else FLAC) or (encoding == CODES and rate_hz):
        with pytest.raises(InvalidField):
            check(whole=whole, encoding=encoding, sample_rate_hz=rate_hz)
    else:
        assert check(whole=whole, encoding=encoding, sample_rate_hz=rate_hz).encoding == encoding


@pytest.mark.parametrize(
    ("audio", "field"),
    [
        ({"encoding": 99}, "audio.encoding"),
        ({"encoding": FLAC}, "audio.encoding"),
        ({"encoding": OPUS, "whole": True}, "audio.encoding"),
        ({"sample_rate_hz": 32_000}, "audio.sample_rate_hz"),
        ({"encoding": OPUS, "sample_rate_hz": 22_050}, "audio.sample_rate_hz"),
        ({"encoding": OGG_OPUS, "sample_rate_hz": 44_100}, "audio.sample_rate_hz"),
        ({"encoding": MULAW, "sample_rate_hz": 16_000}, "audio.sample_rate_hz"),
        ({"frame_duration_ms": 9}, "audio.frame_duration_ms"),
        ({"frame_duration_ms": 1001}, "audio.frame_duration_ms"),
        ({"encoding": OPUS, "frame_duration_ms": 80}, "audio.frame_duration_ms"),
        ({"encoding": OGG_OPUS, "frame_duration_ms": 85}, "audio.frame_duration_ms"),
        ({"bitrate_bps": 64_000}, "audio.bitrate_bps"),
        ({"encoding": OPUS, "bitrate_bps": 5_999}, "audio.bitrate_bps"),
        ({"encoding": OPUS, "bitrate_bps": 256_001}, "audio.bitrate_bps"),
        ({"speed": 0.49}, "speed"),
        ({"speed": 2.01}, "speed"),
        ({"speed": 0.0}, "speed"),
        ({"speed": float("nan")}, "speed"),
        ({"gain_db": 16.1}, "volume_gain_db"),
        ({"gain_db": -96.1}, "volume_gain_db"),
        ({"gain_db": float("-inf")}, "volume_gain_db"),
    ],
)
def test_what_cannot_be_is_refused_by_name(audio: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check(**audio)
    assert caught.value.field == f"config.{field}"
    assert not isinstance(caught.value, NotServed)


def test_decimals_are_as_written() -> None:
    spec = check(speed=1.1, gain_db=-3.3)
    assert (spec.speed, spec.gain_db) == (1.1, -3.3)


@pytest.mark.parametrize("encoding", (OPUS, OGG_OPUS))
def test_without_pyav_opus_says_what_to_install(monkeypatch: pytest.MonkeyPatch, encoding: int) -> None:
    monkeypatch.setattr(opus, "available", lambda: False)
    assert set(served_encodings()) == {PCM, WAV, FLAC, MULAW, ALAW, CODES}
    with pytest.raises(NotServed) as caught:
        check(encoding=encoding)
    assert caught.value.reason == "OPUS_NOT_INSTALLED"
    assert opus.INSTALL in str(caught.value)
