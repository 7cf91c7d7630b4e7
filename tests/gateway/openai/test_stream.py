"""The WebSocket of vLLM-Omni and SGLang-Omni, message by message."""

import base64
import io
import json
import wave
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from sonorant.engine import FinishReason
from sonorant.gateway.openai import stream
from sonorant.service.session import config
from tests.gateway.harness import gateway
from tests.gateway.openai._support import PCM, Message, connect, say, until
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import eventually
from tests.service.keys import ADA, table
from tests.written_texts import TOKENS


async def test_words_are_spoken_as_they_come() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json(PCM)
        await say(socket, "word ", done=False)
        first = await socket.receive(timeout=60)
        assert first.json()["type"] == "audio.start" and first.json()["sentence_text"] == "word "
        assert (await socket.receive(timeout=60)).type is aiohttp.WSMsgType.BINARY, "before the text was complete"


async def test_numbers_in_pieces_are_those_of_the_whole_text() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json(PCM)
        for pieces in TOKENS:
            await say(socket, *pieces)
            _, audio = await until(socket, "session.done")
            assert audio == spoken("".join(pieces), 1)


async def test_an_utterance_has_its_messages_and_its_samples() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json(PCM)
        for index in range(2):  # on one connection
            await say(socket, "word ", "by word")
            messages, audio = await until(socket, "session.done")
            assert audio == spoken("word by word", seed=1)
            start, done, session = messages
            about = {"utterance_index": index, "sentence_index": 0}
            assert (start["type"], start["format"], start["sample_rate"]) == ("audio.start", "pcm", 24_000)
            assert done == {"type": "audio.done", **about, "total_bytes": len(audio), "error": False}
            assert session == {"type": "session.done", "utterance_index": index, "total_sentences": 1}
            assert about.items() <= start.items()


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [
        ("sentence", ["One, 2.5 of Dr. Who.", 'He said "No!"', "三。", "Four"]),
        ("clause", ["One,", "2.5 of Dr. Who.", 'He said "No!"', "三。", "Four"]),
    ],
)
async def test_sentences_and_clauses_are_texts_of_their_own(granularity: str, expected: list[str]) -> None:
    text = 'One, 2.5 of Dr. Who. He said "No!" 三。Four'
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json({**PCM, "split_granularity": granularity})
        await say(socket, *text)  # letter by letter
        messages, audio = await until(socket, "session.done")
    starts = [message for message in messages if message["type"] == "audio.start"]
    assert [start["sentence_text"] for start in starts] == expected
    assert [start["sentence_index"] for start in starts] == [*range(len(expected))]
    assert audio == b"".join(spoken(sentence, seed=1) for sentence in expected)
    assert messages[-1]["total_sentences"] == len(expected)


@pytest.mark.parametrize("granularity", ["sentence", "clause"])
@pytest.mark.parametrize("said", ["Let me look that up.", "Let me look that up. ", "Really?"])
async def test_a_finished_sentence_is_spoken_to_its_end_without_more_text(granularity: str, said: str) -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json({**PCM, "split_granularity": granularity})
        await say(socket, said, done=False)
        audio = b""
        while len(audio) < len(spoken(said.strip(), seed=1)):
            message = await socket.receive(timeout=60)
            audio += message.data if message.type is aiohttp.WSMsgType.BINARY else b""
        await say(socket, " And so on.")
        _, rest = await until(socket, "session.done")
        assert audio + rest == spoken(said.strip(), seed=1) + spoken("And so on.", seed=1)


async def test_more_sentences_than_a_server_takes_at_once() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json({**PCM, "split_granularity": "sentence"})
        await say(socket, "Yes. " * 50)
        messages, audio = await until(socket, "session.done")
    assert messages[-1]["total_sentences"] == 50 and "error" not in messages[-1]
    assert audio == spoken("Yes.", seed=1) * 50


async def test_without_streaming_each_text_is_one_file() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json({"type": "session.config", "voice": "ada", "seed": 1})
        await say(socket, "word ", "by word")
        messages, audio = await until(socket, "session.done")
        with wave.open(io.BytesIO(audio)) as file:
            assert file.readframes(file.getnframes()) == spoken("word by word", seed=1)
        assert messages[0]["format"] == "wav"
        await socket.send_json({"type": "session.config", "response_format": "mp3"})
        await say(socket, "word")
        assert (await until(socket, "session.done"))[1][:1] == b"\xff"


async def test_words_come_with_the_audio_that_has_them() -> None:
    text = "one two three four five"
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json({**PCM, "word_timestamps": True, "early_word_timestamps": True})
        await say(socket, text)
        messages, audio = await until(socket, "session.done")
    chunks = [message for message in messages if message["type"] == "audio.chunk"]
    assert audio == spoken(text, seed=1) and messages[0]["word_timestamps"] is True
    assert [chunk["chunk_id"] for chunk in chunks] == [*range(len(chunks))]
    assert [word["word"] for chunk in chunks for word in chunk["timestamps"]] == text.split()
    assert chunks[0]["chunk_start_ms"] == 0 and chunks[-1]["chunk_end_ms"] == len(audio) // 48
    for chunk in chunks:
        assert all(word["start_ms"] < chunk["chunk_end_ms"] for word in chunk["timestamps"])


async def test_words_come_behind_the_audio_where_vllm_omni_has_them() -> None:
    text = "one two three"
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json({**PCM, "word_timestamps": True})
        await say(socket, text)
        messages, audio = await until(socket, "session.done")
    *chunks, last = [message for message in messages if message["type"] == "audio.chunk"]
    assert audio == spoken(text, seed=1) and {chunk["timestamps"] for chunk in chunks} == {None}
    assert last["audio_b64"] == "" and [word["word"] for word in last["timestamps"]] == text.split()
    assert last["chunk_end_ms"] == chunks[-1]["chunk_end_ms"] == len(audio) // 48


async def test_a_cancel_says_what_was_heard_and_frees_the_stream() -> None:
    engine = FakeEngine(frame_s=0.002)
    text = "word " * 60
    async with gateway(engine) as door, connect(door) as socket:
        await socket.send_json({**PCM, "max_lead_ms": 2000})
        await say(socket, text, done=False)
        await until(socket, "audio.start")
        heard = 0
        while heard < 1.7 * 48_000:
            heard += len(await socket.receive_bytes(timeout=60))
        await socket.send_json({"type": "input.cancel", "played_ms": 1700})
        messages, _ = await until(socket, "session.done")
        done, session = messages
        assert done["type"] == "audio.done" and done["cancelled"] is True
        assert session["cancelled"] is True and session["spoken_text"] == text[: done["spoken_chars"]]
        assert 0 < done["spoken_chars"] < len(text) / 2
        await eventually(lambda: len(engine.live), 0, 2.0)
        await say(socket, "and on")  # the connection lives on
        messages, audio = await until(socket, "session.done")
        assert audio == spoken("and on", seed=1) and messages[-1]["utterance_index"] == 1


async def test_a_cancel_after_the_text_stops_all_that_waits() -> None:
    engine = FakeEngine(frame_s=0.002)
    async with gateway(engine) as door, connect(door) as socket:
        await socket.send_json({**PCM, "max_lead_ms": 1000})
        for _ in range(3):
            await say(socket, "word " * 60)
        await until(socket, "audio.start")
        await socket.send_json({"type": "input.cancel"})
        for index in range(3):
            session = (await until(socket, "session.done"))[0][-1]
            assert session["cancelled"] is True and session["utterance_index"] == index
        await eventually(lambda: len(engine.live), 0, 2.0)


async def test_sglangs_dialect() -> None:
    config = {name: value for name, value in PCM.items() if name != "type"}
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json({"type": "session.config", "session": config})
        configured = await socket.receive_json(timeout=60)
        assert (configured["type"], configured["split_granularity"]) == ("session.configured", "sentence")
        await say(socket, "One. Two", done=False)
        await socket.send_json({"type": "input.commit"})
        messages, audio = await until(socket, "input.committed")
        assert audio == spoken("One.", seed=1) + spoken("Two", seed=1)
        assert (messages[-1]["segment_sentences"], messages[-1]["total_sentences"]) == (2, 2)
        await say(socket, "Three.")
        messages, audio = await until(socket, "session.done")
        assert audio == spoken("Three.", seed=1) and messages[-1]["total_sentences"] == 3
        assert (await socket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE


async def test_mistakes_are_told_and_the_connection_lives_on() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json(PCM)
        for wrong in (
            {"type": "sing"},
            {"type": "input.text", "text": 7},
            {"type": "input.text", "text": "a" * 200_000},
            {"type": "input.cancel", "played_ms": -1},
            {"type": "session.config", "stream_audio": True, "response_format": "mp3"},
            {"type": "session.config", "ref_audio": "file:///etc/passwd"},
        ):
            await socket.send_json(wrong)
            assert (await socket.receive_json(timeout=60))["type"] == "error", wrong
        await say(socket, "fine \x07")
        kinds = [message["type"] for message in (await until(socket, "session.done"))[0]]
        assert "error" in kinds
        await say(socket, "word")
        assert (await until(socket, "session.done"))[1] == spoken("word", seed=1)


async def test_a_recording_in_the_config_is_cloned() -> None:
    engine = FakeEngine(task="base")
    uri = "data:audio/wav;base64," + base64.b64encode(b"a recording").decode()
    async with gateway(engine) as door, connect(door) as socket:
        await socket.send_json({**PCM, "voice": "label", "ref_audio": uri, "ref_text": "hello"})
        await say(socket, "word")
        assert (await until(socket, "session.done"))[1]
    (params,) = engine.opened
    assert params.reference_codes is not None and (params.reference_text, params.speaker) == ("hello", None)


async def test_text_that_comes_late_is_spoken_and_a_silent_socket_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends an utterance that was left open; the gateway ends a socket without any."""
    monkeypatch.setattr(config, "DEFAULT_IDLE_TIMEOUT_MS", 100)
    monkeypatch.setattr(stream, "IDLE_S", 0.2)
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json(PCM)
        for late in ("a", "b ", "c.", "4"):
            await say(socket, late, done=False)
            messages, audio = await until(socket, "session.done")
            assert audio == spoken(late, seed=1)
            assert not any(message["type"] == "error" for message in messages)
        messages, _ = await until(socket, "error")
        assert messages[-1]["code"] == "idle_timeout"
        assert (await socket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE


async def test_what_comes_before_the_config_ends_the_connection() -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await say(socket, "word", done=False)
        assert (await socket.receive_json(timeout=60))["type"] == "error"
        assert (await socket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE


@pytest.mark.parametrize("ended", [True, False])
async def test_session_close_lets_what_was_sent_be_heard(ended: bool) -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json({**PCM, "sample_rate": None, "max_lead_ms": None})
        await say(socket, "word", done=ended)
        await socket.send_json({"type": "session.close"})
        assert (await until(socket, "session.done"))[1] == spoken("word", seed=1)
        assert (await socket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE


@pytest.mark.parametrize("response_format", ["pcm", "wav", "mp3", "flac"])
async def test_a_file_is_sent_whole_or_not_at_all(response_format: str) -> None:
    engine = FakeEngine(frame_s=0.002)
    async with gateway(engine) as door, connect(door) as socket:
        await socket.send_json({**PCM, "stream_audio": False, "response_format": response_format})
        await say(socket, "word " * 60)
        await eventually(lambda: engine.frames_made > 40, True)
        next(iter(engine.live.values())).end(FinishReason.FAILED, "the engine lost it")
        messages, audio = await until(socket, "session.done")
        assert not audio
        _, error, done, _ = messages
        assert (error["type"], error["partial_audio"]) == ("error", False)
        assert (done["total_bytes"], done["error"]) == (0, True)


async def test_a_connection_that_is_cut_frees_its_stream() -> None:
    engine = FakeEngine(frame_s=0.005)
    async with gateway(engine) as door:
        async with connect(door) as socket:
            await socket.send_json(PCM)
            await say(socket, "word " * 60)
            await eventually(lambda: len(engine.live), 1)
        await eventually(lambda: len(engine.live), 0, 2.0)


async def test_a_drain_lets_the_utterance_end() -> None:
    engine = FakeEngine(frame_s=0.002)
    async with gateway(engine) as door, connect(door) as socket:
        await socket.send_json(PCM)
        await say(socket, "word " * 10)
        await eventually(lambda: len(engine.live), 1)
        door.drain.set()
        assert (await until(socket, "session.done"))[1] == spoken("word " * 10, seed=1)
        assert (await socket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE


async def test_browsers_send_their_key_as_a_subprotocol_and_foreign_pages_are_refused(tmp_path: Any) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(table("ada", ADA))
    async with gateway(FakeEngine(), server={"api_keys": keys}, headers={"X-API-Key": ADA}) as door:
        browser = {"headers": {"X-API-Key": "", "Origin": door.url}, "protocols": ("sonorant", f"sonorant-key.{ADA}")}
        async with connect(door, **browser) as socket:
            await socket.send_json(PCM)
            await say(socket, "word")
            assert (await until(socket, "session.done"))[1] == spoken("word", seed=1)
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await connect(door, headers={"Origin": "https://elsewhere.example"})
        assert caught.value.status == 403


WRONG = (
    {"type": "input.text", "text": "\ud800"},
    {"type": "input.cancel", "played_ms": 2**32},
    {**PCM, "max_lead_ms": 2**32},
    {**PCM, "seed": 2**70, "sample_rate": 2**40},
    {**PCM, "voice": "\udfff"},
)


@pytest.mark.parametrize("message", WRONG)
async def test_what_fits_into_no_field_is_told_and_the_socket_lives_on(message: Message) -> None:
    async with gateway(FakeEngine()) as door, connect(door) as socket:
        await socket.send_json(PCM)
        await socket.send_str(json.dumps(message))
        assert (await until(socket, "error"))[0][0]["message"]
        await say(socket, "word")
        assert (await until(socket, "session.done"))[1] == spoken("word", seed=1)


@pytest.mark.parametrize("granularity", ["none", "sentence"])
async def test_commits_that_nobody_can_answer_yet_are_bounded(granularity: str) -> None:
    """While the utterance before it is spoken, what is sent for the next one waits."""
    engine = FakeEngine()
    async with gateway(engine) as door, connect(door) as socket:
        await socket.send_json({**PCM, "split_granularity": granularity})
        engine.hold()
        await say(socket, "first. ")
        await say(socket, "second. ", done=False)
        for _ in range(5000):
            await socket.send_json({"type": "input.commit"})
        refused = (await until(socket, "error"))[0][-1]
        assert refused["code"] in ("too_many", "too_much_text")
        await socket.send_json({"type": "input.cancel"})
        messages, _ = await until(socket, "session.done")
        assert messages[-1]["cancelled"]
        engine.release()


async def test_a_drain_tells_all_at_once_even_if_they_do_not_answer() -> None:
    async with gateway(FakeEngine()) as door, AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(connect(door, autoclose=False)) for _ in range(4)]
        door.drain.set()
        for socket in sockets:
            assert (await socket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE, "none waits for another"
