"""Validation alone: which config becomes which parameters, and which is refused where."""

import asyncio
from typing import Any

import numpy as np
import pytest

from sonorant.service.access.api_keys import ANYONE
from sonorant.service.admission.ledger import Ledger
from sonorant.service.admission.usage import Usage
from sonorant.service.errors import InvalidField, NotServed, VoiceNotFound
from sonorant.service.operations.metrics import Metrics
from sonorant.service.session.config import SpeakSpec, check_speak_config, check_utterance_id
from sonorant.service.utterance.requests import UtteranceSpec, check_synthesis
from sonorant.service.utterance.utterance import seeded
from sonorant.service.voices.choice import Presets, VoiceChoice, VoiceChooser
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2, voice_pb2
from tests.service.fake_engine import DEFAULT_SAMPLING, FakeEngine


def choose(voice: voice_pb2.VoiceSelector, engine: Any, path: str) -> VoiceChoice:
    return asyncio.run(
        VoiceChooser(engine, Presets(engine.infos), None, Usage(Ledger(), Metrics())).choose(voice, path, ANYONE)
    )


def check(engine: Any = None, *, non_streaming_default: bool | None = False, **config: Any) -> UtteranceSpec:
    message = synthesis_pb2.SynthesisConfig(**config)
    engine = engine or FakeEngine()
    choice = choose(message.voice, engine, "config.voice")
    return check_synthesis(message, choice, engine, "config", non_streaming_default=non_streaming_default)


def check_speak(config: speak_pb2.SpeakConfig) -> SpeakSpec:
    engine: Any = FakeEngine()
    return check_speak_config(config, choose(config.synthesis.voice, engine, "config.synthesis.voice"), engine)


def test_nothing_given_is_the_checkpoints_own() -> None:
    spec = check()
    assert spec.params.sampling == DEFAULT_SAMPLING
    assert (spec.params.speaker, spec.params.language, spec.params.instruct) == ("ada", "auto", "")
    assert spec.voice_id == "ada"
    assert (spec.audio.encoding, spec.audio.sample_rate_hz, spec.audio.frame_duration_ms) == (
        audio_pb2.AUDIO_ENCODING_PCM_S16LE,
        24_000,
        80,
    )
    assert not spec.warnings


def test_every_sampling_field_arrives() -> None:
    given: dict[str, Any] = {
        "temperature": 0.7, "top_k": 0, "top_p": 0.85, "repetition_penalty": 1.3, "seed": 2**32 - 1,
        "do_sample": True, "subtalker_do_sample": True, "subtalker_temperature": 0.33, "subtalker_top_k": 9,
        "subtalker_top_p": 0.1, "min_frames": 3, "max_frames": 77, "ignore_eos": True,
    }  # fmt: skip
    sampling = check(sampling=given).params.sampling
    assert {name: getattr(sampling, name) for name in given} == given, "decimals as written, not as float32"


def test_seeds_are_drawn_per_utterance_unless_given() -> None:
    drawn = {seeded(check()).params.sampling.seed for _ in range(20)}
    assert len(drawn) > 1
    assert seeded(check(sampling={"seed": 0})).params.sampling.seed == 0


def test_max_audio_is_frames() -> None:
    assert check(max_audio_ms=1000).params.sampling.max_frames == 12
    assert check(max_audio_ms=1).params.sampling.max_frames == 1
    assert check(max_audio_ms=1).params.sampling.min_frames == 1, "the default gives way"
    assert check(max_audio_ms=1000, sampling={"max_frames": 5}).params.sampling.max_frames == 5
    assert check(max_audio_ms=1000, speed=1.6).params.sampling.max_frames == 20, "of audio as it is heard"
    assert check(max_audio_ms=10**9).params.sampling.max_frames == DEFAULT_SAMPLING.max_frames


def test_layout_default_is_the_callers_and_presence_counts() -> None:
    assert check().params.non_streaming_mode is False
    assert check(non_streaming_default=True).params.non_streaming_mode is True
    assert check(non_streaming_default=True, non_streaming_mode=False).params.non_streaming_mode is False
    assert check(non_streaming_default=None).params.non_streaming_mode is True, "as CustomVoice officially"
    embedding = {"speaker_embedding": {"values": [0.0] * 8}}
    assert (
        check(FakeEngine(task="base"), non_streaming_default=None, voice=embedding).params.non_streaming_mode is False
    )


def test_values_that_change_nothing_are_no_requests_for_what_is_not_served() -> None:
    check(speed=1.0, volume_gain_db=0.0, normalize_text=False)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"voice": {"reference": {"audio": b"x"}}}, "voice.reference"),
        ({"voice": {"design": "deep"}}, "voice.design"),
        ({"normalize_text": True}, "normalize_text"),
    ],
)
def test_what_is_not_served_is_refused_by_name(config: dict[str, Any], field: str) -> None:
    with pytest.raises(NotServed) as caught:
        check(**config)
    assert caught.value.field == f"config.{field}"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"language": "klingon"}, "language"),
        ({"instructions": "x" * 1025}, "instructions"),
        ({"instructions": "a\0"}, "instructions"),
        ({"voice": {"speaker_embedding": {"values": [1.0]}}}, "voice.speaker_embedding"),
        ({"voice": {"speaker_embedding": {"values": [float("nan")] * 8}}}, "voice.speaker_embedding"),
        ({"voice": {"mix": {}}}, "voice.mix.voices"),
        ({"sampling": {"temperature": float("nan")}}, "sampling.temperature"),
        ({"sampling": {"temperature": 0.0}}, "sampling.temperature"),
        ({"sampling": {"top_p": float("inf")}}, "sampling.top_p"),
        ({"sampling": {"min_frames": 9, "max_frames": 8}}, "sampling.min_frames"),
    ],
)
def test_what_is_wrong_is_refused_by_name(config: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check(**config)
    assert not isinstance(caught.value, NotServed)
    assert caught.value.field == f"config.{field}"


def test_unknown_voice() -> None:
    with pytest.raises(VoiceNotFound, match="ListVoices tells"):
        check(voice={"voice_id": "eve"})
    assert check(voice={"voice_id": "Bob"}).params.speaker == "bob"


def test_a_speaker_embedding_takes_the_place_of_a_speaker() -> None:
    spec = check(FakeEngine(task="base"), voice={"speaker_embedding": {"values": range(8)}})
    assert spec.params.speaker is None and spec.voice_id == ""
    assert spec.params.x_vector is not None
    assert spec.params.x_vector.tolist() == [*range(8)] and spec.params.x_vector.dtype == np.float32


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"text_policy": {"mode": 9}}, "config.text_policy.mode"),
        ({"text_policy": {"max_buffer_delay_ms": 0}}, "config.text_policy.max_buffer_delay_ms"),
        ({"text_policy": {"first_chunk_min_chars": 1001}}, "config.text_policy.first_chunk_min_chars"),
        (
            {"text_policy": {"mode": speak_pb2.COMMIT_MODE_MANUAL, "max_buffer_delay_ms": 50}},
            "config.text_policy.max_buffer_delay_ms",
        ),
        ({"timestamps": 9}, "config.timestamps"),
        ({"max_lead_ms": 600_001}, "config.max_lead_ms"),
        ({"idle_timeout_ms": 0}, "config.idle_timeout_ms"),
        ({"synthesis": {"speed": 2.1}}, "config.synthesis.speed"),
    ],
)
def test_speak_config(config: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check_speak(speak_pb2.SpeakConfig(**config))
    assert caught.value.field == field


def test_speak_config_defaults() -> None:
    spec = check_speak(speak_pb2.SpeakConfig())
    assert (spec.max_lead_ms, spec.idle_timeout_s) == (2000, 120)
    assert check_speak(speak_pb2.SpeakConfig(max_lead_ms=0)).max_lead_ms == 0


def test_utterance_ids() -> None:
    check_utterance_id("turn-1 é")
    for bad in ("*", "x" * 65, "a\n"):
        with pytest.raises(InvalidField):
            check_utterance_id(bad)
