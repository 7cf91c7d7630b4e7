"""Pronunciation dictionaries as clients use them, against a real server: the command, Python and the gateway."""

import json
from pathlib import Path
from typing import Any

import pytest

from sonorant.client import DictionaryNotFound, SpeechClient, synthesis_config
from tests.clients.cli._support import sonorant
from tests.gateway.harness import gateway
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import served


async def test_python_makes_names_and_deletes_one(tmp_path: Path) -> None:
    async with served(FakeEngine(), voices_dir=tmp_path) as server, SpeechClient(server.address) as client:
        assert (await client.put_dictionary("names", {"Nguyen": "win"})).version == 1
        assert (await client.put_dictionary("names", {"Nguyen": "wynn"})).version == 2
        assert dict((await client.dictionary("names", 1)).pronunciations) == {"Nguyen": "win"}
        assert [each.dictionary_id for each in await client.dictionaries()] == ["names"]
        for named, heard in (("names", "wynn"), ("names@1", "win")):
            config = synthesis_config(voice="ada", seed=7, dictionaries=[named])
            assert (await client.synthesize("Nguyen", config)).audio == spoken(heard, 7)
        async with client.speak(synthesis_config(voice="ada", seed=7, dictionaries=["names"])) as session:
            await session.send_text("Nguyen")
            await session.finish()
            audio = b"".join([event.payload.data async for event in session if hasattr(event.payload, "data")])
        assert audio == spoken("wynn", 7)
        await client.delete_dictionary("names")
        with pytest.raises(DictionaryNotFound, match="no dictionary 'names'"):
            await client.synthesize("Nguyen", config)
    with pytest.raises(ValueError, match="ID@VERSION"):
        synthesis_config(dictionaries=["names@new"])


async def test_the_command_makes_shows_uses_and_deletes_one(tmp_path: Path) -> None:
    file, wav = tmp_path / "words.json", tmp_path / "out.wav"
    file.write_text('{"SQL": "sequel", "Nguyen": "wynn"}')
    async with served(FakeEngine(), voices_dir=tmp_path / "voices") as server:

        async def run(*arguments: str) -> tuple[int, str, str]:
            status, stdout, stderr = await sonorant(*arguments, "--server", server.address)
            return status, stdout.decode(), stderr

        put = await run("dictionaries", "put", "words", "Nguyen=win", "--file", str(file))
        assert put == (0, "words@1\n", "")
        assert await run("dictionaries") == (0, "words@1\t2 phrases\n", "")
        shown = json.loads((await run("dictionaries", "show", "words", "--version", "1"))[1])
        assert shown["pronunciations"] == {"SQL": "sequel", "Nguyen": "win"}
        say = ("say", "SQL", "--voice", "ada", "--seed", "7", "--wav", str(wav), "--dictionary", "words@1")
        assert (await run(*say))[0] == 0
        assert wav.read_bytes()[44:] == spoken("sequel", 7)
        assert (await run("dictionaries", "delete", "words"))[0] == 0
        status, _, stderr = await run("dictionaries", "show", "words")
        assert status == 1 and "no dictionary 'words'" in stderr
        file.write_text('["SQL"]')
        status, _, stderr = await run("dictionaries", "put", "words", "--file", str(file))
        assert status == 1 and "must be an object" in stderr


async def test_the_gateway_s_doors_take_them(tmp_path: Path) -> None:
    async with gateway(FakeEngine(), server={"voices_dir": tmp_path}) as door:

        async def answer(method: str, path: str = "", **body: Any) -> tuple[int, Any]:
            url = f"/v1/audio/dictionaries{path}"
            async with door.http.request(method, url, **({"json": body} if body else {})) as response:
                return response.status, await response.json()

        status, made = await answer("POST", id="words", pronunciations={"SQL": "sequel"})
        assert (status, made["version"], made["num_phrases"], made["object"]) == (200, 1, 1, "audio.dictionary")
        assert (await answer("POST", id="words", pronunciations={"SQL": "S Q L"}))[1]["version"] == 2
        assert [each["id"] for each in (await answer("GET"))[1]["data"]] == ["words"]
        status, old = await answer("GET", "/words?version=1")
        assert (old["pronunciations"], old["versions"]) == ({"SQL": "sequel"}, [2, 1])
        assert (await door.speak("SQL", voice="ada", dictionaries=["words@1"])) == (200, spoken("sequel", 1))
        assert (await door.speak("SQL", voice="ada", dictionaries=["words"])) == (200, spoken("S Q L", 1))
        cartesia = {
            "model_id": "sonic",
            "transcript": "SQL",
            "voice": {"id": "ada"},
            "pronunciation_dict_id": "words",
            "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000},
        }
        async with door.http.post("/tts/bytes", json=cartesia) as response:
            assert response.status == 200 and len(await response.read()) == len(spoken("S Q L"))
        for body, param in (
            ({"id": "Words!", "pronunciations": {"SQL": "x"}}, "id"),
            ({"id": "words", "pronunciations": {"SQL": "..."}}, None),  # the message names the phrase
            ({"id": "words", "pronunciations": {"SQL": 1}}, "pronunciations"),
        ):
            status, refused = await answer("POST", **body)
            assert (status, refused["error"]["param"]) == (400, param)
        assert (await answer("GET", "/words?version=-1"))[0] == 400
        assert (await answer("DELETE", "/words"))[1]["deleted"] is True
        status, refused = await answer("GET", "/words")
        assert status == 404 and "GET /v1/audio/dictionaries tells" in refused["error"]["message"]
        status, error = await door.refusal("SQL", voice="ada", dictionaries=["words"])
        assert (status, error["code"], error["param"]) == (404, "dictionary_not_found", "dictionaries[0]")
