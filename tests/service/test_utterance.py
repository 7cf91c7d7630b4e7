"""What cannot be reached from outside in reasonable time."""

import asyncio
from typing import Any

import pytest

from service.errors import SlowReader
from service.playback import Playback
from service.requests import check_synthesis
from service.utterance import Utterance
from service.voice_choice import VoiceChoice
from sonorant.tts.v1 import audio_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine


async def test_who_takes_no_audio_for_long_loses_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.utterance.WRITE_TIMEOUT_S", 0.05)
    engine: Any = FakeEngine()
    choice = VoiceChoice(engine.info, "config.voice", voice_id="ada", speaker="ada")
    spec = check_synthesis(synthesis_pb2.SynthesisConfig(), choice, engine, "config", non_streaming_default=False)
    utterance = Utterance("u", spec, engine, Playback(), 0, 1000)
    utterance.push_text("a" * 100)
    messages = utterance.messages()
    while not isinstance(await anext(messages), audio_pb2.AudioChunk):
        pass
    assert engine.num_streams == 1
    await asyncio.sleep(0.1)
    assert engine.num_streams == 0
    with pytest.raises(SlowReader, match="read faster"):
        while True:
            await anext(messages)
