"""/v1/audio/voices: made, listed, spoken with and deleted, in the fields of OpenAI and vLLM-Omni."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import FormData

from sonorant.gateway.upstream.voices import OPENAI_VOICES, resolve_voice, voice_id
from tests.gateway.harness import Door, gateway
from tests.service.fake_engine import FakeEngine
from tests.service.keys import ADA, BOB, table

SAMPLE = b"a recording of at least some bytes"
CONSENT = "Anna agreed, letter of 2026-11-02"


@asynccontextmanager
async def keeping(folder: Path, engine: FakeEngine | None = None, **options: Any) -> AsyncIterator[Door]:
    server = {"voices_dir": folder / "voices", **options.pop("server", {})}
    async with gateway(engine or FakeEngine(task="base"), server=server, **options) as door:
        yield door


def form(name: str, **fields: str) -> FormData:
    made = FormData({"name": name, "consent": CONSENT, **fields})
    if "speaker_embedding" not in fields:
        made.add_field("audio_sample", SAMPLE, filename="anna.wav", content_type="audio/wav")
    return made


async def test_a_voice_is_made_listed_spoken_with_and_deleted(tmp_path: Path) -> None:
    engine = FakeEngine(task="base")
    async with keeping(tmp_path, engine) as door:
        fields = {"ref_text": "hello", "speaker_description": "warm"}
        async with door.http.post("/v1/audio/voices", data=form("My Anna_2", **fields)) as response:
            made = await response.json()
            assert response.status == 200, made
        assert (made["id"], made["object"], made["type"], made["name"]) == (
            "my-anna-2",
            "audio.voice",
            "audio_sample",
            "My Anna_2",
        )
        assert made["success"] is True and made["voice"]["consent"] == CONSENT and made["created_at"] > 1_700_000_000
        async with door.http.get("/v1/audio/voices") as response:
            listed = await response.json()
        assert listed["voices"] == ["my-anna-2"] == [voice["id"] for voice in listed["data"]]
        (uploaded,) = listed["uploaded_voices"]
        assert (uploaded["name"], uploaded["ref_text"], uploaded["speaker_description"]) == (
            "my-anna-2",
            "hello",
            "warm",
        )
        for name in ("my-anna-2", "My Anna_2", "MY-ANNA-2"):
            assert (await door.speak("hello", voice=name))[0] == 200
        assert (await door.speak("hello", task_type="Base", voice="my-anna-2"))[0] == 200
        async with door.http.get("/v1/audio/voices/my-anna-2") as response:
            assert (await response.json())["description"] == "warm"
        async with door.http.delete("/v1/audio/voices/my-anna-2") as response:
            gone = await response.json()
        assert gone["success"] is True and gone["deleted"] is True
        assert (await door.refusal("hello", voice="my-anna-2"))[0] == 404
        async with door.http.delete("/v1/audio/voices/my-anna-2") as response:
            assert response.status == 404


async def test_voices_with_names_of_any_script(tmp_path: Path) -> None:
    async with keeping(tmp_path) as door:
        for name in ("René", "小明", "Jo"):
            async with door.http.post("/v1/audio/voices", data=form(name)) as response:
                made = await response.json()
                assert (response.status, made["name"]) == (200, name)
            assert (await door.speak("hello", voice=name))[0] == 200
            assert (await door.speak("hello", voice=made["id"]))[0] == 200
        for name in ("Renè", "晓明", "Jö"):
            assert (await door.refusal("hello", voice=name))[0] == 404


async def test_no_voice_has_a_name_that_means_another(tmp_path: Path) -> None:
    async with keeping(tmp_path) as door:
        for name in ("alloy", "default", " Default "):
            async with door.http.post("/v1/audio/voices", data=form(name)) as response:
                assert (response.status, (await response.json())["error"]["param"]) == (400, "name")


async def test_a_voice_of_an_embedding(tmp_path: Path) -> None:
    async with keeping(tmp_path) as door:
        async with door.http.post(
            "/v1/audio/voices", data=form("ben", speaker_embedding=json.dumps([0.5] * 8))
        ) as response:
            made = await response.json()
            assert made.get("kind") == "embedded", made
        async with door.http.post("/v1/audio/voices", data=form("ben", speaker_embedding="[1, 'x']")) as response:
            assert response.status == 400
        async with door.http.post("/v1/audio/voices", data=form("ben")) as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"]) == (400, "voice_exists"), "there is one"


async def test_voices_are_those_of_the_key(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(table("ada", ADA) + table("bob", BOB))
    async with keeping(tmp_path, server={"api_keys": tmp_path / "keys.toml"}) as door:
        ada, bob = {"X-API-Key": ADA}, {"X-API-Key": BOB}
        async with door.http.post("/v1/audio/voices", data=form("anna"), headers=ada) as response:
            assert response.status == 200
        for headers, expected in ((ada, ["anna"]), (bob, [])):
            async with door.http.get("/v1/audio/voices", headers=headers) as response:
                assert (await response.json())["voices"] == expected
        async with door.http.delete("/v1/audio/voices/anna", headers=bob) as response:
            assert response.status == 404
        async with door.http.get("/v1/audio/voices") as response:
            assert response.status == 401


async def test_presets_are_listed_and_cannot_be_deleted() -> None:
    async with gateway(FakeEngine()) as door:
        async with door.http.get("/v1/audio/voices") as response:
            assert (await response.json())["voices"] == ["ada", "bob"]
        async with door.http.delete("/v1/audio/voices/ada") as response:
            assert response.status == 400
        async with door.http.get("/open-webui/audio/voices") as response:
            assert (await response.json())["voices"] == [{"id": "ada", "name": "Ada"}, {"id": "bob", "name": "Bob"}]
        async with door.http.get("/open-webui/audio/models") as response:
            listed = await response.json()
            assert {"id": "tts-1", "object": "model"}.items() <= listed["models"][1].items()
            assert listed["data"] == listed["models"]


async def test_making_voices_where_none_are_kept_says_so() -> None:
    async with (
        gateway(FakeEngine(task="base")) as door,
        door.http.post("/v1/audio/voices", data=form("anna")) as response,
    ):
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (400, "voices_not_kept")


def test_names_become_ids() -> None:
    assert [voice_id(name) for name in ("Anna", " My  Voice ", "My_Voice", "7of9", "???", "")] == [
        "anna",
        "my-voice",
        "my-voice",
        "v-7of9",
        "",
        "",
    ]
    distinct = (
        "René",
        "Renè",
        "Rene",
        "小明",
        "晓明",
        "Анна",
        "Anna",
        "Άννα",
        "Jo",
        "J",
        "ジョー",
        "x" * 99,
        "x" * 98,
        "٣",
        "3",
        "Voice A",
        "Voice A+",
        "Voice A-",
        "Voice A?",
        "voice.a",
        "O'Neil",
        "O Neil",
    )
    ids = [voice_id(name) for name in distinct]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[a-z][a-z0-9-]{2,62}", each) for each in ids)
    assert ids[0].startswith("rene-") and ids[3].startswith("xiaoming-")
    assert voice_id("Rene\u0301") == voice_id("rené ") == resolve_voice("RENÉ") == ids[0]
    assert resolve_voice(ids[0]) == ids[0]
    assert voice_id("anna-") == resolve_voice("Anna-") == "anna-"
    presets = ("uncle_fu", "vivian")
    assert (
        resolve_voice("Uncle_Fu", presets) == "uncle_fu"
        and resolve_voice("", presets) == resolve_voice("default") == ""
    )
    assert {resolve_voice(name, presets) for name in OPENAI_VOICES} == set(presets)
    assert resolve_voice("alloy") == ""


async def test_openais_sdk_makes_and_deletes_voices(tmp_path: Path) -> None:
    import openai  # takes seconds, which test processes without this test need not spend

    async with keeping(tmp_path) as door, openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="none") as client:
        voice = await client.audio.voices.create(
            name="Anna", consent=CONSENT, audio_sample=("a.wav", SAMPLE, "audio/wav")
        )
        assert (voice.id, voice.type, voice.name) == ("anna", "audio_sample", "Anna")
        spoken = await client.audio.speech.create(model="tts-1", voice={"id": voice.id}, input="hello")
        assert spoken.response.status_code == 200
        gone = await client.audio.voices.delete(voice.id)
        assert gone.deleted and gone.id == "anna"
    async with (
        keeping(tmp_path / "designs", FakeEngine(task="voice_design")) as door,
        openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="none") as client,
    ):
        voice = await client.audio.voices.create(name="Low", prompt="a low voice", type="prompt")
        assert (voice.id, voice.type, voice.prompt) == ("low", "prompt", "a low voice")


async def test_each_checkpoint_has_an_id_of_its_own() -> None:
    engine = FakeEngine()
    engine.infos = (
        replace(engine.info, model="one"),
        replace(engine.info, model="two"),
        replace(engine.info, model="a,b"),
    )
    engine.info = replace(engine.info, model="one, two, a,b")
    async with gateway(engine) as door:
        async with door.http.get("/v1/models") as response:
            listed = [each["id"] for each in (await response.json())["data"]]
        assert listed[:3] == ["one", "two", "a,b"] and "one, two, a,b" not in listed
        for name in listed:
            async with door.http.get(f"/v1/models/{name}") as response:
                assert (response.status, (await response.json())["id"]) == (200, name)
            assert (await door.speak("hello", model=name))[0] == 200
        async with door.http.get("/v1/models/three") as response:
            assert response.status == 404
