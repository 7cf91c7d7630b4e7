"""Phrases that are said again come from memory: the same bytes, for who may hear them, and nothing else does."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonorant.engine import EngineState, PcmChunk, SynthesisParams
from sonorant.service.audio.codes import parse
from sonorant.service.utterance import delivery
from sonorant.service.utterance.phrases import (
    EVERYBODY,
    MAX_PHRASE_FRAMES,
    CallerPhrases,
    Phrase,
    Phrases,
    SpokenPhrase,
    receipt,
)
from sonorant.service.utterance.wanted_phrases import PhrasesFileError, read_phrases
from sonorant.tts.v1 import speak_pb2, synthesis_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest, SynthesizeStreamRequest
from sonorant.tts.v1.voice_service_pb2 import CreateVoiceRequest, DeleteVoiceRequest
from tests.service.fake_engine import DEFAULT_SAMPLING, FakeEngine
from tests.service.fake_speech import FRAMES_PER_CHAR, spoken
from tests.service.harness import Served, Transcript, config, end, eventually, flush, say, served, speak
from tests.service.keys import ADA, BOB, bearer, table

TEXT = "One moment please."
SEED = {"seed": 7}
GREEDY = {"do_sample": False, "subtalker_do_sample": False}
MANUAL = {"mode": speak_pb2.COMMIT_MODE_MANUAL}
CACHE_BYTES = 4_000_000


async def stream(server: Served, text: str = TEXT, metadata: Any = None, **fields: Any) -> tuple[bytes, Any, Any]:
    """Bytes, started and stats of a whole text."""
    fields = {"sampling": SEED, **fields}
    request = SynthesizeStreamRequest(text=text, config=synthesis_pb2.SynthesisConfig(**fields))
    responses = [response async for response in server.stub.SynthesizeStream(request, metadata=metadata)]
    audio = b"".join(response.audio.data for response in responses if response.HasField("audio"))
    return audio, responses[0].started, responses[-1].done.stats


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"sampling": GREEDY},
        {"speed": 1.3, "audio": {"sample_rate_hz": 8_000}},
        {"audio": {"encoding": "AUDIO_ENCODING_OGG_OPUS"}},
        {"audio": {"encoding": "AUDIO_ENCODING_CODES"}},
        {"pronunciations": {"One": "Won"}},
    ],
)
async def test_a_hit_is_the_same_bytes_without_the_engine(fields: dict[str, Any]) -> None:
    engine = FakeEngine()
    async with served(engine, phrase_cache_bytes=CACHE_BYTES) as server:
        audio, started, first = await stream(server, **fields)
        assert not started.from_phrase_cache and first.kept_frames == 0 and engine.num_opened == 1
        again, started, stats = await stream(server, **fields)
        assert started.from_phrase_cache and stats.kept_frames == stats.codec_frames > 0
        assert engine.num_opened == 1
        if fields.get("audio", {}).get("encoding") == "AUDIO_ENCODING_CODES":  # whose records are cut as they come
            made, kept = (parse(codes).segments for codes in (audio, again))
            assert [part.tolist() for part in kept] == [part.tolist() for part in made]
        elif fields.get("sampling") != GREEDY:  # whose seed, which is drawn, decides over nothing but serial numbers
            assert again == audio
        assert stats.sent_ms == first.sent_ms
        clip = await server.stub.Synthesize(
            SynthesizeRequest(text=TEXT, config=synthesis_pb2.SynthesisConfig(**{"sampling": SEED, **fields}))
        )
        assert engine.num_opened == 1 and clip.stats.kept_frames == stats.kept_frames


@pytest.mark.parametrize(
    "other",
    [
        {"sampling": {"seed": 8}},
        {"sampling": {}},
        {"sampling": {**SEED, "temperature": 0.5}},
        {"voice": {"voice_id": "bob"}},
        {"language": "german"},
        {"non_streaming_mode": False},
        {"max_audio_ms": 60_000},
        {"text": "One moment please"},
        {"text": " One moment please."},
    ],
)
async def test_what_differs_in_anything_is_made(other: dict[str, Any]) -> None:
    engine = FakeEngine()
    async with served(engine, phrase_cache_bytes=CACHE_BYTES) as server:
        await stream(server)
        _, started, _ = await stream(server, **other)
        assert not started.from_phrase_cache and engine.num_opened == 2


async def test_without_a_seed_each_is_another() -> None:
    engine = FakeEngine()
    async with served(engine, phrase_cache_bytes=CACHE_BYTES) as server:
        seeds = {(await stream(server, sampling={}))[1].seed for _ in range(3)}
        assert len(seeds) == engine.num_opened == 3


async def test_none_is_kept_unless_it_is_asked_for() -> None:
    engine = FakeEngine()
    async with served(engine) as server:
        await stream(server)
        await stream(server)
        assert engine.num_opened == 2


async def said(server: Served, policy: Any, *requests: speak_pb2.SpeakRequest, max_lead_ms: int = 0) -> Transcript:
    first = config(sampling=SEED)
    first.text_policy.CopyFrom(speak_pb2.TextPolicy(**policy))
    first.max_lead_ms = max_lead_ms
    return await speak(server.stub, [first, *requests])


async def test_segments_of_a_session_are_phrases_and_what_follows_is_made() -> None:
    engine = FakeEngine()
    async with served(engine, phrase_cache_bytes=CACHE_BYTES) as server:
        first = await said(server, MANUAL, say(TEXT), end())
        assert engine.num_opened == 1
        script = (say(TEXT), flush(1), say(" Here it is."), end(), say(TEXT), end())
        heard = await said(server, MANUAL, *script)
        assert engine.num_opened == 2  # of what follows
        assert heard.pcm["u1"] == first.pcm["u1"] + spoken(" Here it is.", 7)
        assert heard.pcm["u2"] == first.pcm["u1"]
        stats = heard.done["u1"].stats
        assert stats.kept_frames == len(TEXT) * FRAMES_PER_CHAR < stats.codec_frames
        assert stats.spoken_chars == len(TEXT) + len(" Here it is.")


async def test_a_text_that_is_a_phrase_so_far_waits_a_moment_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PHRASE_WAIT_S", 60.0)
    engine = FakeEngine()
    async with served(engine, phrase_cache_bytes=CACHE_BYTES) as server:
        await said(server, {}, say(TEXT), end())
        heard = await said(server, {}, say(TEXT), end())
        assert engine.num_opened == 1 and heard.done["u1"].stats.kept_frames
        monkeypatch.setattr(delivery, "PHRASE_WAIT_S", 0.0)
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=config(sampling=SEED)))
        await call.write(say(TEXT))
        await eventually(lambda: engine.num_opened, 2)  # no end came, so it is made
        call.cancel()


async def test_pacing_holds_for_phrases_too() -> None:
    """Of a minute-long lead nothing is seen here: a phrase longer than the lead waits for its listener."""
    async with served(FakeEngine(), phrase_cache_bytes=CACHE_BYTES) as server:
        text = "x" * 60  # 9.6 s
        await said(server, MANUAL, say(text), end())
        call = server.stub.Speak()
        first = config(sampling=SEED)
        first.text_policy.CopyFrom(speak_pb2.TextPolicy(**MANUAL))
        first.max_lead_ms = 1000
        for request in (speak_pb2.SpeakRequest(config=first), say(text), end(), speak_pb2.SpeakRequest(cancel={})):
            await call.write(request)
        await call.done_writing()
        responses = [response async for response in call]
        (done,) = [response.done for response in responses if response.HasField("done")]
        assert done.reason == synthesis_pb2.FINISH_REASON_CANCELLED and done.stats.sent_ms < 9600


async def test_a_hit_needs_no_place_in_the_engine() -> None:
    engine = FakeEngine(max_streams=1)
    async with served(engine, phrase_cache_bytes=CACHE_BYTES) as server:
        audio, *_ = await stream(server)
        engine.enter(EngineState.RESTARTING)
        assert (await stream(server))[0] == audio


async def test_phrases_are_of_one_key_and_go_with_their_voice(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(table("ada", ADA) + table("bob", BOB))
    engine = FakeEngine(task="base")
    async with served(engine, api_keys=keys, voices_dir=tmp_path / "voices", phrase_cache_bytes=CACHE_BYTES) as server:

        async def create(key: str, audio: bytes) -> None:
            create = CreateVoiceRequest(voice_id="anna", consent="hers", reference={"audio": audio})
            await server.voices.CreateVoice(create, metadata=bearer(key))

        async def hits(key: str, **voice: Any) -> bool:
            return (await stream(server, metadata=bearer(key), voice=voice))[1].from_phrase_cache

        for voice in ({"reference": {"audio": b"one"}}, {"speaker_embedding": {"values": [0.5] * 8}}):
            assert not await hits(ADA, **voice)
            assert await hits(ADA, **voice)
            assert not await hits(BOB, **voice)
        await create(ADA, b"her voice")
        await create(BOB, b"her voice")
        assert [await hits(ADA, voice_id="anna") for _ in range(2)] == [False, True]
        assert not await hits(BOB, voice_id="anna")
        await server.voices.DeleteVoice(DeleteVoiceRequest(voice_id="anna"), metadata=bearer(ADA))
        await create(ADA, b"her voice")
        assert not await hits(ADA, voice_id="anna")
        assert await hits(BOB, voice_id="anna")
        await server.voices.DeleteVoice(DeleteVoiceRequest(voice_id="anna"), metadata=bearer(ADA))
        await create(ADA, b"another")
        assert not await hits(ADA, voice_id="anna")


async def test_wanted_phrases_are_there_before_anybody_asks(tmp_path: Path) -> None:
    """For both layouts, and for every key; one that cannot be kept is told and takes none of the others along."""
    keys, wanted = tmp_path / "keys.toml", tmp_path / "phrases.jsonl"
    keys.write_text(table("ada", ADA) + table("bob", BOB))
    wanted.write_text(
        f'{{"text": "{TEXT}", "config": {{"sampling": {{"seed": 7}}}}}}\n\n'
        '{"text": "Chance decides."}\n'
        '{"text": "Hello.", "config": {"sampling": {"seed": 7}, "non_streaming_mode": true}}\n'
    )
    engine = FakeEngine()
    settings: dict[str, Any] = {"api_keys": keys, "phrases": wanted, "phrase_cache_bytes": CACHE_BYTES}
    async with served(engine, **settings) as server:
        await eventually(lambda: (engine.num_opened, engine.num_streams), (3, 0))
        for key in (ADA, BOB):
            for fields in ({}, {"non_streaming_mode": False}, {"text": "Hello."}):
                _, started, _ = await stream(server, metadata=bearer(key), **fields)
                assert started.from_phrase_cache, fields
        assert engine.num_opened == 3


@pytest.mark.parametrize("line", ["Hello.", '{"txt": "Hello."}'])
def test_a_file_of_phrases_that_is_wrong_says_where(tmp_path: Path, line: str) -> None:
    path = tmp_path / "phrases.jsonl"
    path.write_text(f'{{"text": "Hi."}}\n{line}\n')
    with pytest.raises(PhrasesFileError, match="line 2"):
        read_phrases(path)
    (tmp_path / "misspelt").write_text('{"text": "Hi.", "config": {"instrucions": "softly"}}')
    with pytest.raises(PhrasesFileError, match=r"did you mean instructions\?"):
        read_phrases(tmp_path / "misspelt")
    with pytest.raises(PhrasesFileError, match="cannot be read"):
        read_phrases(tmp_path / "none")
    path.write_text('{"text": "Hi.\u2028There."}\r\n{"text": "x"}', encoding="utf-8")
    assert [request.text for request in read_phrases(path)] == ["Hi.\u2028There.", "x"]


def chunk(first_frame: int, num_frames: int) -> PcmChunk:
    codes = np.full((num_frames, 4), first_frame, np.int16)
    return PcmChunk(first_frame, num_frames, np.full(num_frames * 10, first_frame, np.int16), codes)


PARAMS = SynthesisParams(DEFAULT_SAMPLING, speaker="ada")


def test_a_hundred_thousand_phrases_stay_within_the_bound() -> None:
    phrases = Phrases(1_000_000)
    for number in range(100_000):
        codes = np.zeros((1 + number % 40, 4), np.int16)
        phrases.put(f"caller {number % 7}", "ada", number.to_bytes(32, "big"), Phrase(codes, np.zeros(10, np.int16)))
        assert phrases.num_bytes <= 1_000_000
    assert 500 < len(phrases) < 2000
    last = phrases.find(f"caller {99_999 % 7}", "ada", (99_999).to_bytes(32, "big"))
    assert last is not None and len(last.codes) == 1 + 99_999 % 40


@settings(max_examples=200)
@given(
    max_bytes=st.sampled_from([0, 100, 3000, 20_000]),
    actions=st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "keep", "give up", "find", "forget"]),
            st.integers(0, 3),
            st.integers(1, MAX_PHRASE_FRAMES),
        ),
        max_size=60,
    ),
)
def test_whatever_is_spoken_the_bound_holds_and_nobody_hears_others(
    max_bytes: int, actions: list[tuple[str, int, int]]
) -> None:
    phrases = Phrases(max_bytes)
    spoken = {n: SpokenPhrase(phrases, f"c{n}") for n in range(4)}
    num_frames = dict.fromkeys(range(4), 0)
    for action, n, count in actions:
        match action:
            case "add":
                spoken[n].add(chunk(num_frames[n], count))
                num_frames[n] += count
            case "keep":
                spoken[n].keep("ada", PARAMS, [str(count % 3)])
                spoken[n], num_frames[n] = SpokenPhrase(phrases, f"c{n}"), 0
            case "give up":
                spoken[n].give_up()
                spoken[n], num_frames[n] = SpokenPhrase(phrases, f"c{n}"), 0
            case "find":
                CallerPhrases(phrases, f"c{n}").find("ada", PARAMS, [str(count % 3)])
                assert CallerPhrases(phrases, "nobody").find("ada", PARAMS, [str(count % 3)]) is None
            case "forget":
                phrases.forget(f"c{n}", "ada")
                assert CallerPhrases(phrases, f"c{n}").find("ada", PARAMS, [str(count % 3)]) is None
        assert phrases.num_bytes <= max_bytes
    for each in spoken.values():
        each.give_up()
    for n in range(4):
        phrases.forget(f"c{n}", "ada")
    assert phrases.num_bytes == len(phrases) == 0


def test_what_everybody_may_hear_is_found_by_all() -> None:
    phrases = Phrases(100_000)
    phrase = Phrase(np.zeros((1, 4), np.int16), np.zeros(10, np.int16))
    phrases.put(EVERYBODY, "ada", receipt(PARAMS, ["Hi."]), phrase)
    assert CallerPhrases(phrases, "anyone").find("ada", PARAMS, ["H", "i."]) is phrase


def test_a_receipt_is_of_all_that_decides() -> None:
    x = np.ones(8, np.float32)
    different = [
        PARAMS,
        dataclasses.replace(PARAMS, checkpoint="other"),
        dataclasses.replace(PARAMS, instruct="calm"),
        dataclasses.replace(PARAMS, x_vector=x),
        dataclasses.replace(PARAMS, x_vector=x * 2),
        dataclasses.replace(PARAMS, x_vector=x, reference_codes=np.ones((2, 4), np.int16), reference_text="a"),
        dataclasses.replace(PARAMS, x_vector=x, reference_codes=np.ones((4, 2), np.int16), reference_text="a"),
        dataclasses.replace(PARAMS, sampling=dataclasses.replace(DEFAULT_SAMPLING, seed=1)),
    ]
    receipts = {receipt(params, ["Hi."]) for params in different}
    receipts |= {receipt(PARAMS, ["Hi", None, "."]), receipt(PARAMS, ["Hi"])}
    assert len(receipts) == len(different) + 2
    assert receipt(PARAMS, ["H", "i.", None]) == receipt(PARAMS, ["Hi."])
