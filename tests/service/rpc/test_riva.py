"""Riva's service, spoken to with messages as its clients write them."""

import asyncio
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest

from sonorant.engine import FinishReason
from sonorant.service.rpc.riva import SERVICE
from sonorant.service.rpc.riva_messages import Blanks
from sonorant.tts.riva.v1 import riva_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.service.fake_engine import FakeEngine
from tests.service.harness import Served, eventually, failure, served
from tests.service.keys import ADA, bearer, table

PCM = riva_pb2.RIVA_ENCODING_LINEAR_PCM
MULAW = {"encoding": riva_pb2.RIVA_ENCODING_MULAW, "sample_rate_hz": 0}


def request(text: str = "Hello", **fields: Any) -> riva_pb2.SynthesizeSpeechRequest:
    return riva_pb2.SynthesizeSpeechRequest(
        text=text, **{"encoding": PCM, "sample_rate_hz": 24_000, "language_code": "english", **fields}
    )


class Stub:
    def __init__(self, server: Served) -> None:
        write = riva_pb2.SynthesizeSpeechRequest.SerializeToString
        read = riva_pb2.SynthesizeSpeechResponse.FromString
        self.synthesize = server.channel.unary_unary(f"/{SERVICE}/Synthesize", write, read)
        self.online = server.channel.stream_stream(f"/{SERVICE}/SynthesizeOnline", write, read)
        self.config = server.channel.unary_unary(
            f"/{SERVICE}/GetRivaSynthesisConfig",
            riva_pb2.RivaSynthesisConfigRequest.SerializeToString,
            riva_pb2.RivaSynthesisConfigResponse.FromString,
        )


async def test_a_clip_is_what_our_own_method_makes_of_the_text() -> None:
    async with served(FakeEngine()) as server:
        engine_seeded = await server.stub.Synthesize(SynthesizeRequest(text="Hello", config={"sampling": {"seed": 7}}))
        told = await Stub(server).synthesize(request(id={"value": "mine"}, enable_word_time_offsets=True))
        assert len(told.audio) == len(engine_seeded.audio)
        assert (told.id.value, told.meta.text) == ("mine", "Hello")
        assert [word.word for word in told.meta.words] == ["Hello"]
        assert told.meta.words[0].end_time > told.meta.words[0].start_time


@pytest.mark.parametrize("rate_hz", (8_000, 16_000, 22_050, 44_100, 48_000))
async def test_it_has_the_rates_of_its_clients(rate_hz: int) -> None:
    async with served(FakeEngine()) as server:
        native = await Stub(server).synthesize(request(sample_rate_hz=0))
        told = await Stub(server).synthesize(request(sample_rate_hz=rate_hz))
        assert len(told.audio) // 2 == -(-len(native.audio) // 2 * rate_hz // 24_000)


async def test_pieces_are_one_text_and_its_audio_comes_before_its_end() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        call = Stub(server).online()
        await call.write(request("One is here.", enable_word_time_offsets=True, id={"value": "mine"}))
        first = await call.read()
        assert first.audio and first.id.value == "mine"
        await call.write(request("Two for you.", enable_word_time_offsets=True, id={"value": "mine"}))
        await call.done_writing()
        rest = []
        while (told := await call.read()) is not grpc.aio.EOF:
            rest.append(told)
        assert engine.num_opened == 1
        words = [word.word for told in (first, *rest) for word in told.meta.words]
        assert words == ["One", "is", "here.", "Two", "for", "you."]
        assert all(told.audio for told in rest)


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (("It is $", "25", ".", "99", " at ", "10", ":", "30", "."), "It is $25.99 at 10:30."),
        (("See ", "example", ".com", " or a", "@b", ".", "org"), "See example.com or a@b.org"),
        (("Ver", "sion ", "3", ".", "11", " cost", "s 1", ",", "234", "."), "Version 3.11 costs 1,234."),
        (
            ("In 1987.", 'He said: "So?', '"', "“No!”", "There were.", "5."),
            'In 1987. He said: "So?" “No!” There were. 5.',
        ),
        (("你好。", "世界！"), "你好。世界！"),
        (("The U", ".S", ".", "A."), "The U.S.A."),
        (("One. ", "Two.", "\nThree"), "One. Two.\nThree"),
        (("The quick brown fox", "jumps", "over the lazy dog."), "The quick brown fox jumps over the lazy dog."),
        (("It costs $25,", "about", "20 % more (", "much", ")."), "It costs $25, about 20 % more (much)."),
        (("Ask Mr.", "Smith, or", '"Ann"', "at ten."), 'Ask Mr. Smith, or "Ann" at ten.'),
        (("In 1999", "25 people came."), "In 1999 25 people came."),
        (("The price is", " $", "25", ".99"), "The price is $25.99"),
    ],
)
def test_blanks_that_are_missing_are_put_in_and_no_others(pieces: tuple[str, ...], whole: str) -> None:
    blanks = Blanks()
    assert "".join(map(blanks.restored, pieces)) == whole


async def test_a_price_that_comes_token_by_token_is_one_word() -> None:
    async with served(FakeEngine()) as server:
        tokens = ("It is $", "5", ".", "9", " now.")
        call = Stub(server).online(request(token, enable_word_time_offsets=True) for token in tokens)
        assert [word.word async for told in call for word in told.meta.words] == ["It", "is", "$5.9", "now."]


async def test_other_settings_are_another_utterance() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        call = Stub(server).online()
        for text, voice in (("One.", "ada"), ("Two.", "bob")):
            await call.write(request(text, voice_name=voice))
        await call.done_writing()
        assert [told async for told in call]
        assert engine.num_opened == 2


@pytest.mark.parametrize("name", ("", "Magpie-Multilingual.EN-US.Aria", "English-US.Female-1", "ada", "fake.Ada"))
async def test_names_of_its_own_voices_are_the_default_one(name: str) -> None:
    async with served(FakeEngine()) as server:
        assert (await Stub(server).synthesize(request(voice_name=name))).audio


@pytest.mark.parametrize("text", ("...", " ", "\n", "?!", "\u2014", "\U0001f600"))
async def test_text_without_speech_is_a_moment_of_silence(text: str) -> None:
    async with served(FakeEngine()) as server:
        for fields, silence in (({}, bytes(960)), (MULAW, b"\xff" * 160)):
            call = Stub(server).online()
            await call.write(request(text, **fields))
            await call.done_writing()
            assert [told.audio async for told in call] == [silence]
            assert (await Stub(server).synthesize(request(text, **fields))).audio == silence


async def test_no_text_is_an_error() -> None:
    async with served(FakeEngine()) as server:
        call = Stub(server).online()
        await call.write(request(""))
        await call.done_writing()
        for failed in (call, Stub(server).synthesize(request(""))):
            code, message, _ = await failure(failed)
            assert (code, message) == (grpc.StatusCode.INVALID_ARGUMENT, "text: nothing to say: the text is empty")


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"voice_name": "nobody"}, grpc.StatusCode.NOT_FOUND, "voice_name: no voice 'nobody'"),
        ({"sample_rate_hz": 11_025}, grpc.StatusCode.INVALID_ARGUMENT, "sample_rate_hz: 11025 Hz is not served"),
        ({"sample_rate_hz": -1}, grpc.StatusCode.INVALID_ARGUMENT, "sample_rate_hz: -1 is below 0"),
        ({"encoding": 77}, grpc.StatusCode.INVALID_ARGUMENT, "encoding: 77 is no AudioEncoding"),
        ({"language_code": "xx-YY"}, grpc.StatusCode.INVALID_ARGUMENT, "language_code"),
        ({"custom_dictionary": "word  IPA"}, grpc.StatusCode.UNIMPLEMENTED, "custom_dictionary"),
        ({"custom_configuration": {"a": "b"}}, grpc.StatusCode.UNIMPLEMENTED, "custom_configuration"),
        ({"zero_shot_data": {"audio_prompt": b"x"}}, grpc.StatusCode.UNIMPLEMENTED, "zero_shot_data"),
        (
            {"zero_shot_data": {"audio_prompt": b"x", "encoding": PCM}},
            grpc.StatusCode.INVALID_ARGUMENT,
            "zero_shot_data.sample_rate_hz",
        ),
    ],
)
async def test_refusals_speak_of_its_fields(fields: dict[str, Any], code: grpc.StatusCode, message: str) -> None:
    async with served(FakeEngine()) as server:
        stub = Stub(server)
        call = stub.online()
        await call.write(request(**fields))
        for refused in (await failure(stub.synthesize(request(**fields))), await failure(call)):
            assert refused[0] is code and message in refused[1]


async def test_what_fails_in_mid_stream_is_the_status_of_the_call() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        engine.hold()
        call = Stub(server).online()
        await call.write(request("Hello there, you."))
        await eventually(lambda: engine.num_streams, 1)
        next(iter(engine.live.values())).end(FinishReason.FAILED, "logits are not finite")
        code, message, _ = await failure(call)
        assert code is grpc.StatusCode.INTERNAL and "logits are not finite" in message


async def test_a_client_that_cancels_frees_its_stream() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        call = Stub(server).online()
        await call.write(request("One is here. Two for you."))
        assert (await call.read()).audio
        call.cancel()
        await eventually(lambda: engine.num_streams, 0)


async def test_the_config_is_told_without_a_key_and_speech_is_not(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(table("ada", ADA))
    async with served(FakeEngine(), api_keys=keys) as server:
        stub = Stub(server)
        (config,) = (await stub.config(riva_pb2.RivaSynthesisConfigRequest())).model_config
        assert config.parameters["voice_name"] == config.model_name
        assert config.parameters["subvoices"].startswith("ada:0,")
        code, message, _ = await failure(stub.config(riva_pb2.RivaSynthesisConfigRequest(model_name="other")))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and config.model_name in message
        code, _, _ = await failure(stub.synthesize(request()))
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert (await stub.synthesize(request(), metadata=bearer(ADA))).audio


async def test_its_calls_are_counted_as_ours_are() -> None:
    async with served(FakeEngine(), metrics_listen="127.0.0.1:0") as server:
        await Stub(server).synthesize(request())
        text = await scraped(server)
        assert 'method="RivaSpeechSynthesis/Synthesize"' in text
        assert 'utterances_total{reason="COMPLETED"} 1.0' in text


async def scraped(server: Served) -> str:
    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=60) as response:
            return str(response.read().decode())

    return await asyncio.to_thread(scrape)
