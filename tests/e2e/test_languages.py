"""The included voice speaks three languages, and is asked for each by the codes of stock clients, at each door."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeAlias

import aiohttp
import grpc
import pytest
from wyoming.audio import AudioChunk
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.info import Describe, Info
from wyoming.tts import Synthesize, SynthesizeStopped, SynthesizeVoice

from sonorant.client import Marks, SpeechClient, SpeechError, synthesis_config
from sonorant.service.rpc.riva import SERVICE as RIVA
from sonorant.tts.riva.v1 import riva_pb2
from tests.e2e.server_process import ServerProcess
from tests.gateway.cartesia_client import end as to_cartesia_end
from tests.gateway.cartesia_client import text as to_cartesia
from tests.gateway.gateway_process import GatewayProcess
from tests.service.harness import eventually

LANGUAGES = ("english", "italian", "spanish")
CODES = {
    "english": ("en", "en-US", "en_GB", "English"),
    "spanish": ("es", "es-ES", "es-MX", "es-419", "es_US", "Spanish"),
    "italian": ("it", "it-IT", "ITALIAN"),
}
TEXT = "Son 20°C."
REFUSAL = "use auto, english, italian, spanish, or the tag of one of them"
Door: TypeAlias = Callable[
    [str], Coroutine[Any, Any, bytes | str]
]  # says TEXT in a language, or refuses with a sentence


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("voice") / "log") as process:
        yield process


@pytest.fixture(scope="module")
def gateway(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    log = tmp_path_factory.mktemp("gateway") / "log"
    with GatewayProcess(log, "--server", server.address, "--wyoming-listen", "127.0.0.1:0") as process:
        yield process


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[SpeechClient]:
    async with SpeechClient(server.address) as client:
        yield client


@pytest.fixture
async def http(gateway: GatewayProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(gateway.url) as http:

        async def status() -> int:
            async with http.get("/ready") as response:
                return response.status

        await eventually(status, 200)
        yield http


@pytest.fixture(params=["openai", "websocket", "cartesia", "cartesia socket", "riva", "wyoming"])
def door(
    request: pytest.FixtureRequest, http: aiohttp.ClientSession, channel: grpc.aio.Channel, gateway: GatewayProcess
) -> Door:
    doors: dict[str, Door] = {
        "openai": lambda language: posted(
            http, "/v1/audio/speech", {"input": TEXT, "response_format": "pcm", "language": language}
        ),
        "websocket": lambda language: by_websocket(http, language),
        "cartesia": lambda language: posted(http, "/tts/bytes", to_cartesia("a", TEXT, **VOICE, language=language)),
        "cartesia socket": lambda language: by_cartesia(http, language),
        "riva": lambda language: by_riva(channel, language),
        "wyoming": lambda language: by_wyoming(gateway.wyoming_port, language),
    }
    return doors[request.param]


VOICE: dict[str, Any] = {"voice": {"mode": "id", "id": "default"}}


async def posted(http: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> bytes | str:
    async with http.post(path, json=body) as response:
        return await (response.read() if response.status == 200 else response.text())


async def by_websocket(http: aiohttp.ClientSession, language: str) -> bytes | str:
    pcm = b""
    async with http.ws_connect("/v1/audio/speech/stream") as socket:
        about = {"response_format": "pcm", "stream_audio": True, "language": language, "non_streaming_mode": True}
        await socket.send_json({"type": "session.config", **about})
        await socket.send_json({"type": "input.text", "text": TEXT})
        await socket.send_json({"type": "input.done"})
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                pcm += message.data
            elif message.json()["type"] == "error":
                return str(message.data)
            elif message.json()["type"] == "session.done":
                break
    return pcm


async def by_cartesia(http: aiohttp.ClientSession, language: str) -> bytes | str:
    pcm = b""
    async with http.ws_connect("/tts/websocket") as socket:
        await socket.send_json(to_cartesia("a", TEXT, **VOICE, language=language))
        await socket.send_json(to_cartesia_end("a") | VOICE | {"language": language})
        async for message in socket:
            told = message.json()
            if told["type"] == "error":
                return str(message.data)
            if told["type"] == "done":
                break
            pcm += told["data"].encode() if told["type"] == "chunk" else b""
    return pcm


async def by_riva(channel: grpc.aio.Channel, language: str) -> bytes | str:
    write, read = riva_pb2.SynthesizeSpeechRequest.SerializeToString, riva_pb2.SynthesizeSpeechResponse.FromString
    synthesize = channel.unary_unary(f"/{RIVA}/Synthesize", write, read)
    encoding = riva_pb2.RIVA_ENCODING_LINEAR_PCM
    request = riva_pb2.SynthesizeSpeechRequest(text=TEXT, language_code=language, encoding=encoding)
    try:
        return bytes((await synthesize(request)).audio)
    except grpc.aio.AioRpcError as error:
        return error.details() or ""


async def by_wyoming(port: int, language: str) -> bytes | str:
    pcm = b""
    async with AsyncTcpClient("127.0.0.1", port) as client, asyncio.timeout(60):
        await client.write_event(Synthesize(TEXT, SynthesizeVoice(language=language)).event())
        while (event := await client.read_event()) is not None:
            if Error.is_type(event.type):
                return Error.from_event(event).text
            if AudioChunk.is_type(event.type):
                pcm += AudioChunk.from_event(event).audio
            elif event.type in ("audio-stop", SynthesizeStopped().event().type):
                break
    return pcm


async def test_each_code_is_its_language(client: SpeechClient) -> None:
    said = {}
    for language, codes in CODES.items():
        made = {(await client.synthesize(TEXT, synthesis_config(language=code))).audio for code in (language, *codes)}
        assert len(made) == 1
        said[language] = made.pop()
    assert len({*said.values(), (await client.synthesize(TEXT)).audio}) == len(LANGUAGES) + 1


async def test_doors_take_the_codes_and_refuse_others(door: Door) -> None:
    said = {}
    for code in ("Spanish", "es-MX", "it-IT", "en-US"):
        said[code] = await door(code)
        assert isinstance(said[code], bytes) and said[code], said[code]
    assert said["es-MX"] == said["Spanish"] and len(set(said.values())) == len(LANGUAGES)
    for code in ("de", "fr-FR", "Klingon"):
        refused = await door(code)
        assert isinstance(refused, str) and REFUSAL in refused and "does not speak language" in refused


async def test_each_list_shows_the_languages(
    client: SpeechClient, http: aiohttp.ClientSession, channel: grpc.aio.Channel, gateway: GatewayProcess
) -> None:
    names = list(LANGUAGES)
    assert list((await client.capabilities()).languages) == names
    assert all(list(voice.languages) == names for voice in await client.voices("es-MX"))
    assert await client.voices("es-MX") and not await client.voices("de")
    async with http.get("/v1/audio/voices") as response:
        assert '"spanish"' in await response.text()
    async with AsyncTcpClient("127.0.0.1", gateway.wyoming_port) as wyoming, asyncio.timeout(60):
        await wyoming.write_event(Describe().event())
        event = await wyoming.read_event()
        assert event is not None
        voices = Info.from_event(event).tts[0].voices
    assert voices and all(voice.languages == ["en", "it", "es"] for voice in voices)


async def test_signs_numbers_and_words_are_those_of_the_language(client: SpeechClient) -> None:
    for language, given in {
        "spanish": "¿Qué? Son veintiún grados Celsius.",
        "it": "¿Qué? Son ventuno gradi Celsius.",
        "en": "¿Qué? Son twenty one degrees celsius.",
        "auto": "¿Qué? Son veintiún grados Celsius.",
    }.items():
        explained = await client.explain("¿Qué? Son 21°C.", synthesis_config(language=language))
        assert explained.text == given
        sign = given.split()[-2]
        assert [(change.written, change.given.strip()) for change in explained.changes] == [("°", sign)]


async def test_numbers_sound_as_their_words(client: SpeechClient) -> None:
    for language, written, words in (
        ("es", "Son las 10:30, y vale 1.234,50 €.", "mil doscientos treinta y cuatro euros con cincuenta céntimos"),
        ("it", "Sono le 10:30, e costa 1.234,50 €.", "milleduecentotrentaquattro euro e cinquanta centesimi"),
        ("auto", "Sono le 10:30, e costa 1.234,50 €.", "milleduecentotrentaquattro euro e cinquanta centesimi"),
        ("auto", "It is the TV of 1987.", "tee vee of nineteen eighty seven"),
    ):
        config = synthesis_config(language=language)
        text = (await client.explain(written, config)).text
        assert words in text and not any(char.isdigit() for char in text)
        made = [(await client.synthesize(each, config)).audio for each in (written, text)]
        assert made[0] == made[1]


async def test_words_have_their_places_in_a_text_with_accents(client: SpeechClient) -> None:
    text = "¿Que\u0301 tal, señor? «Así así», n.º 5, a 20°C, l’Òpera costa 3,5€."
    config = synthesis_config(language="es")
    told = [part async for part in client.stream(text, config, timestamps=True, max_lead_ms=0)]
    marks = [mark for part in told if isinstance(part, Marks) for mark in part.marks]
    assert [mark.text for mark in marks] == [text[mark.text_start : mark.text_end] for mark in marks] == text.split()


async def test_long_texts_are_cut_at_ends_of_sentences(client: SpeechClient) -> None:
    text = "La Sra. Pérez vive en la Av. Central, n.º 5, desde el s. XIX. ¿Vale 3,5 euros? ¡Claro que sí, D. Juan! " * 6
    for language in ("es", "auto"):
        segments = (await client.explain(text, synthesis_config(language=language))).segments
        assert len(segments) > 2
        assert {text[each.text_start : each.text_end].split()[-1] for each in segments} <= {"XIX.", "euros?", "Juan!"}


async def test_a_language_that_is_not_spoken_is_refused_with_those_that_are(client: SpeechClient) -> None:
    with pytest.raises(SpeechError, match=f"builtin_voice does not speak language 'german'.*{REFUSAL}"):
        await client.synthesize(TEXT, synthesis_config(language="german"))
