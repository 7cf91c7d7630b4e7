"""NVIDIA's own client, and the plugins that use it, with nothing changed but the address."""

import threading
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import riva.client
from riva.client.proto import riva_tts_pb2
from riva.client.proto.riva_audio_pb2 import AudioEncoding

from sonorant.tts.riva.v1 import riva_pb2
from tests.doors.judge import HEARING_HZ, assert_idle, assert_says

TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.fixture
def service(server: str) -> riva.client.SpeechSynthesisService:
    return riva.client.SpeechSynthesisService(riva.client.Auth(uri=server))


def test_both_copies_of_the_messages_live_in_one_process_and_mean_the_same() -> None:
    theirs = riva_tts_pb2.SynthesizeSpeechRequest(text="a", encoding=AudioEncoding.ALAW, enable_word_time_offsets=True)
    theirs.zero_shot_data.audio_prompt = b"x"
    theirs.id.value = "mine"
    ours = riva_pb2.SynthesizeSpeechRequest.FromString(theirs.SerializeToString())
    assert (ours.text, ours.encoding, ours.id.value) == ("a", riva_pb2.RIVA_ENCODING_ALAW, "mine")
    assert ours.SerializeToString(deterministic=True) == theirs.SerializeToString(deterministic=True)


def test_a_clip_with_its_words(service: Any) -> None:
    told = service.synthesize(TEXT, sample_rate_hz=HEARING_HZ, enable_word_time_offsets=True)
    assert_says(told.audio, TEXT)
    assert [word.word for word in told.meta.words] == TEXT.split()
    assert all(word.start_time < word.end_time for word in told.meta.words)


def test_its_default_rate_and_other_encodings(service: Any) -> None:
    default = service.synthesize("Hello.")
    assert len(default.audio) > 22_050
    wide = service.synthesize("Hello.", sample_rate_hz=44_100)  # as NVIDIA's own script asks for it
    assert len(wide.audio) == pytest.approx(2 * len(default.audio), rel=0.3)
    assert service.synthesize("Hello.", encoding=AudioEncoding.FLAC).audio.startswith(b"fLaC")
    assert service.synthesize("Hello.", encoding=AudioEncoding.OGGOPUS, sample_rate_hz=24_000).audio.startswith(b"OggS")
    assert service.synthesize("Hello.", encoding=AudioEncoding.MULAW, sample_rate_hz=8_000).audio


def test_a_stream_of_pieces(service: Any) -> None:
    pieces = ["The quick brown fox", "jumps over", "the lazy dog."]
    told = list(service.synthesize_online(pieces, sample_rate_hz=HEARING_HZ))
    assert len(told) > 3
    assert_says(b"".join(response.audio for response in told), TEXT)


class Written(list[str]):
    """Pieces of a text, the second of which comes when the first was heard. Its client takes no other iterable."""

    def __init__(self) -> None:
        self.heard = threading.Event()

    def __iter__(self) -> Iterator[str]:
        yield "The quick brown fox"
        assert self.heard.wait(60), "nothing came before the text was complete"
        yield "jumps over the lazy dog."


def test_a_stream_sounds_before_its_text_is_complete(service: Any) -> None:
    pieces = Written()
    responses = service.synthesize_online(pieces, sample_rate_hz=HEARING_HZ, enable_word_time_offsets=True)
    told = [next(responses)]
    pieces.heard.set()
    told += list(responses)
    assert [word.word for response in told for word in response.meta.words] == TEXT.split()
    assert_says(b"".join(response.audio for response in told), TEXT)


async def test_a_client_that_cancels_frees_its_stream(service: Any, server: str) -> None:
    responses = service.synthesize_online(TEXT * 20)
    assert next(responses).audio
    responses.cancel()
    await assert_idle(server)


def test_the_voices_are_told_as_its_clients_read_them(service: Any) -> None:
    config = service.stub.GetRivaSynthesisConfig(riva_tts_pb2.RivaSynthesisConfigRequest())
    (model,) = config.model_config
    voices = [voice.split(":")[0] for voice in model.parameters["subvoices"].split(",")]
    name = f"{model.parameters['voice_name']}.{voices[-1]}"
    assert service.synthesize("Hello.", voice_name=name).audio


def test_refusals_are_its_own_errors(service: Any) -> None:
    for fields, code, message in (
        ({"voice_name": "nobody"}, grpc.StatusCode.NOT_FOUND, "voice_name: no voice 'nobody'"),
        ({"sample_rate_hz": 11_025}, grpc.StatusCode.INVALID_ARGUMENT, "sample_rate_hz: 11025 Hz is not served"),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            service.synthesize("Hello.", **fields)
        with pytest.raises(grpc.RpcError) as refused_online:
            list(service.synthesize_online("Hello.", **fields))
        for each in (refused.value, refused_online.value):
            assert each.code() is code and message in each.details()


def test_a_voice_is_cloned_from_a_prompt(service: Any, server_that_clones: str, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.wav"
    with wave.open(str(prompt), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(service.synthesize(TEXT, sample_rate_hz=24_000).audio)
    cloning = riva.client.SpeechSynthesisService(riva.client.Auth(uri=server_that_clones))
    told = cloning.synthesize(TEXT, sample_rate_hz=HEARING_HZ, zero_shot_audio_prompt_file=prompt)
    assert len(told.audio) > HEARING_HZ
