"""Voices that are kept, through a real channel: listed, deleted, moved, shared between servers, limited, damaged."""

import asyncio
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from sonorant.service.rpc import voices as voice_servicer
from sonorant.service.voices import opening
from sonorant.service.voices.sqlite_store import VoiceRegistry
from sonorant.tts.v1 import voice_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import (
    SynthesizeRequest,
)
from sonorant.tts.v1.voice_service_pb2 import (
    CreateVoiceRequest,
    DeleteVoiceRequest,
    ExportVoiceRequest,
    GetVoiceRequest,
    ImportVoiceRequest,
    ListVoicesRequest,
)
from tests.service.fake_engine import FakeEngine
from tests.service.harness import served
from tests.service.keys import ADA, BOB, bearer, table
from tests.service.voice_calls import CODE, RECORDING, clone, ids, refused


async def test_lists_with_pages_and_filters(tmp_path: Path) -> None:
    async with served(FakeEngine(), voices_dir=tmp_path) as server:
        for name, about in (
            ("zoe", {"languages": ["german"], "labels": {"mood": "calm"}}),
            ("carla", {"languages": ["en-GB"], "labels": {"mood": "calm", "age": "old"}}),
            ("dora", {}),
        ):
            request = CreateVoiceRequest(voice_id=name, voice=about, speaker_embedding={"values": range(8)})
            await server.voices.CreateVoice(request)
        assert await ids(server) == ["ada", "bob", "carla", "dora", "zoe"]
        for size in (1, 2, 3, 4):
            found: list[str] = []
            request = ListVoicesRequest(page_size=size)
            while True:
                page = await server.voices.ListVoices(request)
                found += [voice.voice_id for voice in page.voices]
                if not page.next_page_token:
                    break
                assert len(page.voices) == size
                request.page_token = page.next_page_token
            assert found == ["ada", "bob", "carla", "dora", "zoe"]
        assert await ids(server, language="english") == ["ada", "bob", "carla", "dora"]
        assert await ids(server, language="de") == ["dora", "zoe"]
        assert await ids(server, kind=voice_pb2.VOICE_KIND_EMBEDDED) == ["carla", "dora", "zoe"]
        assert await ids(server, kind=voice_pb2.VOICE_KIND_PRESET) == ["ada", "bob"]
        assert await ids(server, labels={"mood": "calm"}) == ["carla", "zoe"]
        assert await ids(server, labels={"mood": "calm", "age": "old"}) == ["carla"]


async def test_pages_fit_into_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice_servicer, "MAX_PAGE_BYTES", 3000)
    async with served(FakeEngine(task="base"), voices_dir=tmp_path) as server:
        for number in range(7):
            await server.voices.CreateVoice(clone(f"anna-{number}", voice={"description": "x" * 1000}))
        found: list[str] = []
        request = ListVoicesRequest()
        while True:
            page = await server.voices.ListVoices(request)
            assert 0 < len(page.voices) <= 2
            found += [voice.voice_id for voice in page.voices]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        assert found == [f"anna-{number}" for number in range(7)]


async def test_kept_clones_are_made_ready_at_the_start_newest_first_as_far_as_they_fit(tmp_path: Path) -> None:
    async with served(FakeEngine(task="base"), voices_dir=tmp_path) as server:
        for name in ("oldest", "older", "newest"):
            await server.voices.CreateVoice(clone(name, reference={"audio": name.encode() * 9, "transcript": name}))
        await server.voices.CreateVoice(CreateVoiceRequest(voice_id="bare", speaker_embedding={"values": range(8)}))
    engine = FakeEngine(task="base")
    engine.info = replace(engine.info, kept_references=2)
    engine.infos = (engine.info,)
    async with served(engine, voices_dir=tmp_path):
        async with asyncio.timeout(60):
            while len(engine.opened) < 2 or engine.num_streams:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert [params.reference_text for params in engine.opened] == ["newest", "older"]
        assert all(params.reference_codes is not None for params in engine.opened)
        assert all(params.sampling.max_frames == 1 for params in engine.opened)
        assert engine.background == [True, True]  # live streams go first


async def test_deleting(tmp_path: Path) -> None:
    async with served(FakeEngine(task="base"), voices_dir=tmp_path) as server:
        delete = server.voices.DeleteVoice
        await server.voices.CreateVoice(clone("anna"))
        await delete(DeleteVoiceRequest(voice_id="Anna"))
        gone = (CODE.NOT_FOUND, "VOICE_NOT_FOUND", "anna")
        assert await refused(delete(DeleteVoiceRequest(voice_id="anna"))) == gone
        await delete(DeleteVoiceRequest(voice_id="anna", allow_missing=True))
        assert await refused(server.voices.GetVoice(GetVoiceRequest(voice_id="anna"))) == gone
        speaking = SynthesizeRequest(text="x", config={"voice": {"voice_id": "anna"}})
        assert await refused(server.stub.Synthesize(speaking)) == gone
    async with served(FakeEngine(), voices_dir=tmp_path) as server:
        preset = (CODE.FAILED_PRECONDITION, "VOICE_IS_PRESET", "ada")
        assert await refused(server.voices.DeleteVoice(DeleteVoiceRequest(voice_id="ADA"))) == preset
        assert await refused(server.voices.ExportVoice(ExportVoiceRequest(voice_id="ada"))) == preset
        taken = CreateVoiceRequest(voice_id="ada", speaker_embedding={"values": range(8)})
        assert await refused(server.voices.CreateVoice(taken)) == (CODE.ALREADY_EXISTS, "VOICE_EXISTS", "ada")
        with pytest.raises(grpc.aio.AioRpcError, match=r"a preset 'ada' exists already; choose another id\""):
            await server.voices.CreateVoice(taken)


async def test_a_voice_moves_to_another_server(tmp_path: Path) -> None:
    engine = FakeEngine(task="base")
    async with served(engine, voices_dir=tmp_path / "here") as server:
        made = (await server.voices.CreateVoice(clone("anna", voice={"labels": {"mood": "calm"}}))).voice
        file = (await server.voices.ExportVoice(ExportVoiceRequest(voice_id="anna"))).voice_file
        again = server.voices.ImportVoice(ImportVoiceRequest(voice_file=file))
        assert await refused(again) == (CODE.ALREADY_EXISTS, "VOICE_EXISTS", "anna")
        await server.stub.Synthesize(SynthesizeRequest(text="Hello", config={"voice": {"voice_id": "anna"}}))
    async with served(engine, voices_dir=tmp_path / "there") as server:
        dry = await server.voices.ImportVoice(ImportVoiceRequest(voice_file=file, validate_only=True))
        assert dry.voice.voice_id == "anna" and await ids(server) == []
        request = ImportVoiceRequest(voice_file=file, request_id="r")
        moved = (await server.voices.ImportVoice(request)).voice
        assert (await server.voices.ImportVoice(request)).voice == moved
        for name in ("voice_id", "consent", "transcript", "labels", "reference_audio_ms", "kind"):
            assert getattr(moved, name) == getattr(made, name)
        await server.stub.Synthesize(SynthesizeRequest(text="Hello", config={"voice": {"voice_id": "anna"}}))
        first, second = engine.opened
        np.testing.assert_array_equal(first.x_vector, second.x_vector)
        np.testing.assert_array_equal(first.reference_codes, second.reference_codes)
        for bad in (b"", b"RIFF", file[:-1], file + b"x"):
            call = server.voices.ImportVoice(ImportVoiceRequest(voice_file=bad))
            assert await refused(call) == (CODE.INVALID_ARGUMENT, "NOT_A_VOICE_FILE", "voice_file")
    other = FakeEngine(task="base", fingerprint="another")
    async with served(other, voices_dir=tmp_path / "there") as server:
        elsewhere = (CODE.FAILED_PRECONDITION, "VOICE_OF_OTHER_CHECKPOINT", "anna")
        speaking = SynthesizeRequest(text="x", config={"voice": {"voice_id": "anna"}})
        assert await refused(server.stub.Synthesize(speaking)) == elsewhere
        imported = ImportVoiceRequest(voice_file=file, voice_id="anna2")
        assert (await refused(server.voices.ImportVoice(imported)))[:2] == elsewhere[:2]
        assert await ids(server) == ["anna"], "it is still there, to be looked at and deleted"


async def test_voices_of_others_do_not_exist(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(table("ada", ADA, "max_voices = 2") + table("bob", BOB, 'voices = ["bobs-voice"]'))
    ada, bob = bearer(ADA), bearer(BOB)
    async with served(FakeEngine(task="base"), voices_dir=tmp_path / "voices", api_keys=keys) as server:
        voices = server.voices
        await voices.CreateVoice(clone("anna"), metadata=ada)
        gone = (CODE.NOT_FOUND, "VOICE_NOT_FOUND", "anna")
        for call in (
            voices.GetVoice(GetVoiceRequest(voice_id="anna"), metadata=bob),
            voices.DeleteVoice(DeleteVoiceRequest(voice_id="anna"), metadata=bob),
            voices.ExportVoice(ExportVoiceRequest(voice_id="anna"), metadata=bob),
        ):
            assert await refused(call) == gone
        assert not (await voices.ListVoices(ListVoicesRequest(), metadata=bob)).voices

        async def speaks(voice: Any, metadata: Any) -> Any:
            return await refused(
                server.stub.Synthesize(SynthesizeRequest(text="x", config={"voice": voice}), metadata=metadata)
            )

        not_allowed = (CODE.PERMISSION_DENIED, "VOICE_NOT_ALLOWED", "")
        assert await refused(voices.CreateVoice(clone("anna"), metadata=bob)) == not_allowed
        assert await refused(voices.CreateVoice(clone(), metadata=bob)) == not_allowed
        assert await speaks({"reference": {"audio": RECORDING}}, bob) == not_allowed
        through_a_mix = {"voices": [{"voice_id": "anna", "weight": 1}] * 2}
        call = voices.CreateVoice(CreateVoiceRequest(voice_id="bobs-voice", mix=through_a_mix), metadata=bob)
        assert await refused(call) == not_allowed
        await voices.CreateVoice(clone("bobs-voice"), metadata=bob)
        request = SynthesizeRequest(text="x", config={"voice": {"voice_id": "bobs-voice"}})
        assert (await server.stub.Synthesize(request, metadata=bob)).audio
        assert await speaks({"voice_id": "bobs-voice"}, ada) == (CODE.NOT_FOUND, "VOICE_NOT_FOUND", "bobs-voice")

        await voices.CreateVoice(clone("berta"), metadata=ada)
        full = (CODE.RESOURCE_EXHAUSTED, "VOICE_QUOTA_REACHED", "")
        assert await refused(voices.CreateVoice(clone("carla"), metadata=ada)) == full
        await voices.DeleteVoice(DeleteVoiceRequest(voice_id="berta"), metadata=ada)
        await voices.CreateVoice(clone("carla"), metadata=ada)


async def test_limits_of_the_server_hold_for_all_at_once(tmp_path: Path) -> None:
    engine = FakeEngine(task="base")
    async with served(engine, voices_dir=tmp_path, max_voices=5) as server:
        made = await asyncio.gather(
            *(server.voices.CreateVoice(clone(f"anna-{i}")) for i in range(12)), return_exceptions=True
        )
        assert sum(not isinstance(one, BaseException) for one in made) == 5
        assert len(await ids(server)) == 5
    async with served(engine, voices_dir=tmp_path / "small", max_voice_bytes=500) as server:
        assert (await refused(server.voices.CreateVoice(clone())))[1] == "VOICE_QUOTA_REACHED"


async def test_voices_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later_s = 0
    monkeypatch.setattr(opening, "VoiceRegistry", partial(VoiceRegistry, clock=lambda: time.time() + later_s))
    async with served(FakeEngine(task="base"), voices_dir=tmp_path) as server:
        made = (await server.voices.CreateVoice(clone("anna", ttl_seconds=1000))).voice
        assert made.expire_time.seconds - made.create_time.seconds == 1000
        request = SynthesizeRequest(text="x", config={"voice": {"voice_id": "anna"}})
        assert (await server.stub.Synthesize(request)).audio
        later_s = 1001
        assert await ids(server) == []
        assert (await refused(server.stub.Synthesize(request)))[0] == CODE.NOT_FOUND


async def test_servers_share_a_folder(tmp_path: Path) -> None:
    async with (
        served(FakeEngine(task="base"), voices_dir=tmp_path) as here,
        served(FakeEngine(task="base"), voices_dir=tmp_path) as there,
    ):
        await here.voices.CreateVoice(clone("anna"))
        request = SynthesizeRequest(text="Hello", config={"voice": {"voice_id": "anna"}})
        assert (await there.stub.Synthesize(request)).audio
        await there.voices.DeleteVoice(DeleteVoiceRequest(voice_id="anna"))
        assert (await refused(here.stub.Synthesize(request)))[0] == CODE.NOT_FOUND


async def test_a_damaged_voice_says_so(tmp_path: Path) -> None:
    async with served(FakeEngine(task="base"), voices_dir=tmp_path, voice_cache_bytes=0) as server:
        await server.voices.CreateVoice(clone("anna"))
        (path,) = (tmp_path / "files").iterdir()
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
        request = SynthesizeRequest(text="x", config={"voice": {"voice_id": "anna"}})
        damaged = (CODE.DATA_LOSS, "VOICE_DAMAGED", "anna")
        assert await refused(server.stub.Synthesize(request)) == damaged
        assert await refused(server.voices.ExportVoice(ExportVoiceRequest(voice_id="anna"))) == damaged
        await server.voices.DeleteVoice(DeleteVoiceRequest(voice_id="anna"))
