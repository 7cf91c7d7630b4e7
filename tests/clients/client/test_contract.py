"""What the contract offers per utterance and per call, through the client library and a real server."""

import asyncio
import sys
import time
from pathlib import Path

import pytest

from sonorant.client import (
    AudioChunk,
    InvalidRequest,
    Marks,
    Player,
    Reason,
    Retry,
    ServerBusy,
    SpeechClient,
    TimedOut,
    UtteranceDone,
    UtteranceStarted,
    reason_of,
    synthesis_config,
    text_policy,
    utterance_config,
)
from sonorant.tts.v1.audio_pb2 import AUDIO_ENCODING_MULAW
from tests.clients.client._support import found_nobody
from tests.clients.scripted_server import scripted_server
from tests.cutting_proxy import CuttingProxy
from tests.free_port import free_port
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually, served


async def test_settings_change_between_utterances_and_for_one_of_them_alone() -> None:
    async with (
        served(FakeEngine()) as server,
        SpeechClient(server.address) as client,
        client.speak(synthesis_config(voice="ada", seed=7), max_lead_ms=0) as session,
    ):
        await session.send_text("One.", "a")
        await session.end("a")
        bob = utterance_config(
            synthesis_config(voice="bob", language="german", encoding="mulaw", seed=8, sample_rate_hz=8000),
            timestamps=True,
        )
        await session.send_text("Two.", "b", config=bob)
        await session.end("b")
        await session.send_text("Three.", "c")
        await session.end("c")
        session.configure(synthesis_config(voice="bob", seed=9, speed=2), text_policy=text_policy("sentence"))
        await session.send_text("Four.", "d")
        await session.finish()
        events = [event async for event in session]

    def of(utterance_id: str, kind: type) -> list[object]:
        return [e.payload for e in events if e.utterance_id == utterance_id and isinstance(e.payload, kind)]

    started = {each: of(each, UtteranceStarted)[0] for each in "abcd"}
    assert [started[each].voice_id for each in "abcd"] == ["ada", "bob", "ada", "bob"]
    assert [started[each].audio.sample_rate_hz for each in "abcd"] == [24_000, 8000, 24_000, 24_000]
    assert [started[each].replay.language for each in "abcd"] == ["auto", "german", "auto", "auto"]
    assert [started[each].audio.encoding == AUDIO_ENCODING_MULAW for each in "abcd"] == [False, True, False, False]
    assert [started[each].seed for each in "abcd"] == [7, 8, 7, 9]
    assert [bool(of(each, Marks)) for each in "abcd"] == [False, True, False, False]
    heard = {each: b"".join(chunk.data for chunk in of(each, AudioChunk)) for each in "abcd"}
    assert heard["a"] == spoken("One.", 7) and heard["c"] == spoken("Three.", 7)
    assert len(heard["d"]) == len(spoken("Four.", 9)) // 2


async def test_settings_of_an_utterance_outlive_a_loss() -> None:
    engine = FakeEngine(frame_s=0.005)
    async with (
        served(engine) as server,
        CuttingProxy(int(server.address.rpartition(":")[2])) as proxy,
        SpeechClient(f"127.0.0.1:{proxy.port}") as client,
        client.speak(synthesis_config(voice="ada", seed=7), max_lead_ms=0) as session,
    ):
        for utterance_id, voice, seed in (("a", "ada", 7), ("b", "bob", 8), ("c", "bob", 9)):
            config = utterance_config(synthesis_config(voice=voice, seed=seed))
            await session.send_text("Words may come one by one.", utterance_id, config=config)
            await session.end(utterance_id)
        await session.finish()
        heard: dict[str, bytes] = {}
        async for event in session:
            if isinstance(event.payload, AudioChunk):
                heard[event.utterance_id] = heard.get(event.utterance_id, b"") + event.payload.data
                if event.utterance_id == "b" and len(heard["b"]) < 20_000:
                    proxy.cut()
    assert heard == {key: spoken("Words may come one by one.", seed) for key, seed in (("a", 7), ("b", 8), ("c", 9))}


async def test_the_33rd_open_utterance_waits_until_another_is_done() -> None:
    engine = FakeEngine()
    async with (
        served(engine) as server,
        SpeechClient(server.address) as client,
        client.speak(synthesis_config(voice="ada", seed=7), max_lead_ms=0) as session,
    ):
        engine.hold()
        for number in range(32):
            await session.send_text("One.", str(number))
            await session.end(str(number))
        another = asyncio.create_task(session.send_text("Another.", "another"))
        await asyncio.sleep(0)
        await session.report_playback(0, "0")  # is written behind what does not wait
        assert not another.done()
        engine.release()
        reasons = []
        async for event in session:
            if isinstance(event.payload, UtteranceDone):
                reasons.append(reason_of(event.payload))
                if len(reasons) == 32:
                    await another
                    await session.finish()
    assert reasons == [Reason.COMPLETED] * 33 and repr(reasons[0]) == "COMPLETED"


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"temprature": 1}, "'temperature'"),
        ({"languge": "english"}, "'language'"),
        ({"encoding": "ogg_opis"}, "'ogg_opus'"),
    ],
)
def test_a_misspelt_field_is_an_invalid_request_with_the_nearest_name(fields: dict[str, object], hint: str) -> None:
    with pytest.raises(InvalidRequest, match=f"did you mean {hint}"):
        synthesis_config(**fields)  # type: ignore[arg-type]


async def test_a_call_has_its_own_time_limit() -> None:
    async with scripted_server() as (target, speech), SpeechClient(target) as client:
        speech.clips_frozen_after, speech.frozen_after = 1, {1: -1, 2: -1, 3: -1}
        limited = client.limited(timeout_s=0.1)
        with pytest.raises(TimedOut, match=r"within the call's 0\.1 s"):
            async for _ in limited.stream("one"):
                pass
        with pytest.raises(TimedOut):
            async with limited.speak():
                pass
        assert (await client.synthesize("one")).audio


async def test_a_client_that_is_told_so_waits_for_a_server_that_is_down_or_full() -> None:
    port = free_port()
    async with SpeechClient(f"127.0.0.1:{port}", retry=Retry(for_s=20, when_down=True, when_busy=True)) as client:
        waiting = asyncio.create_task(client.synthesize("one"))
        await found_nobody(client)
        async with scripted_server(f"127.0.0.1:{port}"):
            assert (await waiting).audio
            begin_s = time.monotonic()
            with pytest.raises(ServerBusy):  # the server says that it is full for two seconds
                async with client.limited(retry=Retry(for_s=1, when_busy=True)).speak(synthesis_config(voice="busy")):
                    pass
            with pytest.raises(ServerBusy):
                async with client.limited(retry=Retry(for_s=3, when_busy=True)).speak(synthesis_config(voice="busy")):
                    pass
            assert 2 <= time.monotonic() - begin_s < 60


async def test_a_player_plays_and_says_what_was_heard_when_it_is_interrupted(tmp_path: Path) -> None:
    into = tmp_path / "played"
    sink = f"import sys,shutil; shutil.copyfileobj(sys.stdin.buffer, open({str(into)!r}, 'wb'), 64)"
    async with Player(8000, [sys.executable, "-c", sink]) as player:
        player.play(bytes(16_000 * 10), "a")
        await eventually(lambda: player.played_ms("a") > 0, True)
        assert 0 < await player.drop("a") < 10_000
        player.play(b"ab" * 8, "b")
    assert into.read_bytes() == b"ab" * 8
