"""Pronunciation dictionaries that the server keeps, through a real channel: in a folder, and in PostgreSQL."""

from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from sonorant.service.dictionaries import dictionaries as limits
from sonorant.service.voices import dictionary_table as rows
from sonorant.service.voices.migration import migrate
from sonorant.service.voices.opening import open_named, open_to_read
from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.dictionary_service_pb2 import (
    DeleteDictionaryRequest,
    GetDictionaryRequest,
    ListDictionariesRequest,
    PutDictionaryRequest,
)
from sonorant.tts.v1.dictionary_service_pb2_grpc import DictionaryServiceStub
from sonorant.tts.v1.explain_pb2 import ExplainRequest
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.service import postgres
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import Served, Transcript, config, end, read_all, read_until, say, served, speak
from tests.service.keys import ADA, BOB, bearer, table
from tests.service.voice_calls import CODE, refused

Place = dict[str, Any]
SEED = {"sampling": {"seed": 7}}


@pytest.fixture(params=["folder", "database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Settings of a server that keeps dictionaries."""
    if request.param == "folder":
        return {"voices_dir": tmp_path / "voices"}
    cluster: postgres.Cluster = request.getfixturevalue("cluster")
    return {"voices_url": cluster.database(f"dictionaries-{tmp_path.name}")}


def dictionaries(server: Served) -> Any:
    return DictionaryServiceStub(server.channel)


async def put(server: Served, name: str, phrases: dict[str, str], **call: Any) -> Any:
    request = PutDictionaryRequest(dictionary_id=name, pronunciations=phrases)
    return (await dictionaries(server).PutDictionary(request, **call)).dictionary


async def listed(server: Served, **call: Any) -> list[tuple[str, int, int]]:
    answer = await dictionaries(server).ListDictionaries(ListDictionariesRequest(), **call)
    return [(each.dictionary_id, each.version, each.num_phrases) for each in answer.dictionaries]


async def said(server: Served, text: str, *named: tuple[str, int], **synthesis: Any) -> Any:
    """The clip of a text with dictionaries."""
    references = [{"dictionary_id": name, "version": version} for name, version in named]
    request = SynthesizeRequest(text=text, config={**SEED, "dictionaries": references, **synthesis})
    return await server.stub.Synthesize(request)


async def test_versions_are_made_listed_used_and_deleted(place: Place) -> None:
    async with served(FakeEngine(), **place) as server:
        first = await put(server, "acme", {"SQL": "sequel", "Kurz": "courts"})
        assert (first.version, first.num_phrases, first.create_time.seconds > 0) == (1, 2, True)
        assert (await put(server, "acme", {"Kurz": "courts", "SQL": "sequel"})).version == 1, "a repetition"
        assert (await put(server, "acme", {"SQL": "S Q L"})).version == 2
        await put(server, "names", {"Kurz": "curse", "SQL": "squeal"})
        assert await listed(server) == [("acme", 2, 1), ("names", 1, 2)]
        request = GetDictionaryRequest(dictionary_id="acme", version=1)
        old = (await dictionaries(server).GetDictionary(request)).dictionary
        assert (dict(old.pronunciations), [*old.versions]) == ({"SQL": "sequel", "Kurz": "courts"}, [2, 1])

        text = "SQL by Kurz."
        for named, heard in (
            ([("acme", 0)], "S Q L by Kurz."),
            ([("acme", 1)], "sequel by courts."),
            ([("names", 0), ("acme", 1)], "squeal by curse."),
            ([("acme", 0), ("names", 0)], "S Q L by curse."),
        ):
            assert (await said(server, text, *named)).audio == spoken(heard, 7), named
        clip = await said(server, text, ("acme", 0), pronunciations={"Kurz": "short"})
        assert clip.audio == spoken("S Q L by short.", 7), "the request's own phrases come first"
        again = await server.stub.Synthesize(SynthesizeRequest(text=text, config=clip.replay))
        assert again.audio == clip.audio and [*again.replay.dictionaries] == [*clip.replay.dictionaries]
        assert clip.replay.dictionaries[0].version == 2, "the receipt names the version"

        await dictionaries(server).DeleteDictionary(DeleteDictionaryRequest(dictionary_id="names"))
        assert await listed(server) == [("acme", 2, 1)]
    async with served(FakeEngine(), **place) as server:  # another server, or the same one later
        assert (await said(server, "SQL", ("acme", 1))).audio == spoken("sequel", 7)


async def test_a_session_keeps_its_version_until_another_config(place: Place) -> None:
    async with served(FakeEngine(), **place) as server:
        await put(server, "acme", {"SQL": "sequel"})
        named = {**SEED, "dictionaries": [{"dictionary_id": "acme"}]}
        settings = speak_pb2.SpeakRequest(config=speak_pb2.SpeakConfig(synthesis=named, max_lead_ms=0))
        call, transcript = server.stub.Speak(), Transcript()
        for request in (settings, say("SQL", "one"), end("one")):
            await call.write(request)
        await read_until(call, transcript, "done", "one")
        await put(server, "acme", {"SQL": "S Q L"})
        for request in (say("SQL", "two"), end("two"), settings, say("SQL", "three"), end("three")):
            await call.write(request)
        await call.done_writing()
        await read_all(call, transcript)
        heard = {"one": "sequel", "two": "sequel", "three": "S Q L"}
        assert transcript.pcm == {utterance: spoken(text, 7) for utterance, text in heard.items()}


async def test_they_belong_to_the_key_that_made_them(place: Place, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(table("ada", ADA) + table("bob", BOB))
    ada, bob = bearer(ADA), bearer(BOB)
    async with served(FakeEngine(), api_keys=keys, **place) as server:
        await put(server, "acme", {"SQL": "sequel"}, metadata=ada)
        assert await listed(server, metadata=bob) == []
        theirs = GetDictionaryRequest(dictionary_id="acme")
        assert (await refused(dictionaries(server).GetDictionary(theirs, metadata=bob)))[0] is CODE.NOT_FOUND
        named = {**SEED, "dictionaries": [{"dictionary_id": "acme"}]}
        request = SynthesizeRequest(text="SQL", config=named)
        assert (await server.stub.Synthesize(request, metadata=ada)).audio == spoken("sequel", 7)
        assert await refused(server.stub.Synthesize(request, metadata=bob)) == (
            CODE.NOT_FOUND,
            "DICTIONARY_NOT_FOUND",
            "acme",
        )
        delete = DeleteDictionaryRequest(dictionary_id="acme")
        assert (await refused(dictionaries(server).DeleteDictionary(delete, metadata=bob)))[0] is CODE.NOT_FOUND
        delete.allow_missing = True
        await dictionaries(server).DeleteDictionary(delete, metadata=bob)
        assert await listed(server, metadata=ada) == [("acme", 1, 1)]


async def test_sizes_are_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_DICTIONARIES", 2)
    monkeypatch.setattr(rows, "MAX_VERSIONS", 3)
    async with served(FakeEngine(), **place) as server:
        many = {f"word{number}": "x" for number in range(limits.MAX_PHRASES + 1)}
        long = {f"w{number}": "x" * 128 for number in range(limits.MAX_CHARS // 128)}
        for phrases in ({}, many, long, {"SQL": "..."}, {" SQL": "x"}, {"SQL": "x" * 129}):
            code, _, field = await refused(put(server, "acme", phrases))
            assert code is CODE.INVALID_ARGUMENT and field.startswith("pronunciations")
        assert (await refused(put(server, "Acme!", {"SQL": "x"})))[2] == "dictionary_id"
        for number in range(5):
            await put(server, "acme", {"SQL": f"number {number}"})
        found = (await dictionaries(server).GetDictionary(GetDictionaryRequest(dictionary_id="acme"))).dictionary
        assert [*found.versions] == [5, 4, 3]
        await put(server, "other", {"SQL": "x"})
        code, reason, _ = await refused(put(server, "third", {"SQL": "x"}))
        assert (code, reason) == (CODE.RESOURCE_EXHAUSTED, "DICTIONARY_QUOTA_REACHED")
        assert (await put(server, "acme", {"SQL": "x"})).version == 6, "a version more is no dictionary more"
        five = [("acme", 0)] * (limits.MAX_NAMED + 1)
        assert (await refused(said(server, "SQL", *five)))[2] == "config.dictionaries"


async def test_explain_tells_what_is_said_and_which_dictionary_is_missing(tmp_path: Path) -> None:
    async with served(FakeEngine(), voices_dir=tmp_path) as server:
        await put(server, "acme", {"SQL": "sequel"})
        named = {"dictionaries": [{"dictionary_id": "acme"}, {"dictionary_id": "acme", "version": 9}]}
        answer = await server.stub.Explain(ExplainRequest(text="SQL", config={**named, "language": "klingon"}))
        told = [error.message for error in answer.errors]
        assert len(told) == 2 and "klingon" in told[0]
        assert told[1].startswith("config.dictionaries[1]: no dictionary 'acme' in version 9")
        del named["dictionaries"][1]
        assert (await server.stub.Explain(ExplainRequest(text="SQL", config=named))).text == "sequel"


async def test_a_server_that_keeps_nothing_says_so() -> None:
    async with served(FakeEngine()) as server:
        assert await listed(server) == []
        code, reason, _ = await refused(put(server, "acme", {"SQL": "sequel"}))
        assert (code, reason) == (CODE.UNIMPLEMENTED, "DICTIONARIES_NOT_KEPT")
        assert (await refused(said(server, "SQL", ("acme", 0))))[1] == "DICTIONARY_NOT_FOUND"
        with pytest.raises(grpc.aio.AioRpcError):
            await speak(server.stub, [config(dictionaries=[{"dictionary_id": "acme"}]), say("SQL"), end()])


def test_they_move_with_the_voices(tmp_path: Path, cluster: postgres.Cluster) -> None:
    url = cluster.database(f"moved-{tmp_path.name}")
    with closing(open_named(str(tmp_path))) as source:
        for number in (1, 2):
            source.run(lambda run, n=number: rows.put(run, "ada", "acme", f'{{"SQL": "{n}"}}', 1, n), writes=True)
    with closing(open_to_read(str(tmp_path))) as source, closing(open_named(url)) as target:
        for _ in range(2):  # the second time changes nothing
            migrate(source, target)
        assert target.run(rows.everything, writes=False) == source.run(rows.everything, writes=False)
        assert [each.version for each in target.run(rows.everything, writes=False)] == [1, 2]
