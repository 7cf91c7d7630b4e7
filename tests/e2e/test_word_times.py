"""Words are told when they are spoken, by real workers: in order, with their audio, where an aligner finds them."""

import asyncio
import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonorant.client import AudioChunk, Marks, SpeechClient, synthesis_config
from sonorant.tts.v1 import speak_pb2, synthesis_pb2, text_to_speech_service_pb2
from tests.cutting_proxy import CuttingProxy
from tests.e2e.server_process import ServerProcess
from tests.service.harness import Transcript, cancel, end, flush, read_all, read_until, say, speak
from tests.spoken_words import true_spans

WORDS = synthesis_pb2.TIMESTAMP_MODE_WORD
TEXT = "The woman thought the water was too cold to swim in, and so did the old man."
FRAME_MS = 80  # a word that is known only after the audio in which it begins is told with the next
WHOLE = {"non_streaming_mode": True}
HEARD = 300  # a sample of -40 dBFS: that pause has none above -58


def settings(seed: int = 5, **synthesis: Any) -> speak_pb2.SpeakConfig:
    return speak_pb2.SpeakConfig(synthesis={"sampling": {"seed": seed}, **synthesis}, timestamps=WORDS, max_lead_ms=0)


def samples_of(pcm: bytes) -> np.ndarray[Any, np.dtype[np.int16]]:
    return np.frombuffer(pcm, np.int16)


def errors_ms(transcript: Transcript, text: str, utterance_id: str = "u1") -> list[int]:
    """Of the starts of words, against those that an aligner finds in the audio. It may put one word where nothing is
    heard, as it puts "in", which runs into "swim", into the pause behind both: there it does not know."""
    samples, marks = samples_of(transcript.pcm[utterance_id]), transcript.marks[utterance_id]
    true = true_spans(text, samples)
    assert true is not None and len(true) == len(marks)
    heard = [np.abs(samples[start_ms * 24 : end_ms * 24]).max() > HEARD for start_ms, end_ms in true]
    assert sum(heard) >= len(true) - 1
    return [abs(mark.start_ms - span[0]) for mark, span, is_heard in zip(marks, true, heard, strict=True) if is_heard]


def assert_words_of(marks: Sequence[synthesis_pb2.Mark], text: str, audio_ms: float) -> None:
    assert [mark.text for mark in marks] == text.split()
    assert [text[mark.text_start : mark.text_end] for mark in marks] == text.split()
    assert all(mark.start_ms <= mark.end_ms <= audio_ms for mark in marks)
    assert all(one.end_ms <= other.start_ms for one, other in itertools.pairwise(marks))
    assert not any(mark.estimated for mark in marks)


async def test_capabilities_name_the_checkpoint(stub: Any) -> None:
    told = await stub.GetCapabilities(text_to_speech_service_pb2.GetCapabilitiesRequest())
    assert [*told.timestamp_modes] == [synthesis_pb2.TIMESTAMP_MODE_PROGRESS, WORDS]
    assert [*told.word_timing_models] == [told.model]


@pytest.mark.parametrize(
    "synthesis", [{}, WHOLE, {"voice": {"voice_id": "linden"}}], ids=["streaming", "whole", "linden"]
)
async def test_words_are_told_where_an_aligner_finds_them(stub: Any, synthesis: dict[str, Any]) -> None:
    transcript = await speak(stub, [settings(**synthesis), say(TEXT), end()])
    assert_words_of(transcript.marks["u1"], TEXT, len(transcript.pcm["u1"]) / 48)
    errors = errors_ms(transcript, TEXT)
    assert np.mean(errors) <= 60 and max(errors) <= 200, errors


async def test_word_by_word_and_in_segments(stub: Any) -> None:
    """Words that come one by one, sentences with a flush between them."""
    pieces = [say(f"{word} ") for word in ["We", "left", "the", "house", "at", "noon."]]
    transcript = await speak(stub, [settings(), *pieces, flush(1), say("The train was late again."), end()])
    text = "We left the house at noon. The train was late again."
    assert_words_of(transcript.marks["u1"], text, len(transcript.pcm["u1"]) / 48)
    errors = errors_ms(transcript, text)
    # Where the machine is busy, a report of the engine may come a frame after its audio: 41 to 73 ms were seen.
    assert np.mean(errors) <= FRAME_MS and max(errors) <= 200, errors


async def test_twice_as_fast_words_are_told_twice_as_early(stub: Any) -> None:
    usual, fast = [(await speak(stub, [settings(speed=speed), say(TEXT), end()])).marks["u1"] for speed in (1.0, 2.0)]
    for one, other in zip(usual, fast, strict=True):
        assert other.start_ms == pytest.approx(one.start_ms / 2, abs=FRAME_MS)


async def test_respelled_words_are_told_where_their_respelling_is_spoken(stub: Any) -> None:
    text, said = "The SQL of IBM is very good.", "The sequel of eye bee em is very good."
    lexicon = {"SQL": "sequel", "IBM": "eye bee em"}
    respelled = await speak(stub, [settings(pronunciations=lexicon), say(text), end()])
    written = await speak(stub, [settings(), say(said), end()])
    starts = {mark.text: mark.start_ms for mark in written.marks["u1"]}
    assert_words_of(respelled.marks["u1"], text, len(respelled.pcm["u1"]) / 48)
    told = {mark.text: mark.start_ms for mark in respelled.marks["u1"]}
    for word, same in (("SQL", "sequel"), ("IBM", "eye"), ("is", "is"), ("good.", "good.")):
        assert told[word] == pytest.approx(starts[same], abs=FRAME_MS + 45)


async def test_scripts_without_spaces_are_told_by_the_character(stub: Any) -> None:
    """The model speaks no such language; where it has been in the text is told all the same, once, and in order."""
    text = "你好 и да 다시, déjà"
    transcript = await speak(stub, [settings(), say(text), end()])
    marks = transcript.marks["u1"]
    assert [mark.text for mark in marks] == ["你", "好", "и", "да", "다", "시", "déjà"]
    assert all(one.end_ms <= other.start_ms for one, other in itertools.pairwise(marks))


async def test_a_barge_in_tells_how_far_the_words_were_heard(stub: Any) -> None:
    call = stub.Speak()
    await call.write(speak_pb2.SpeakRequest(config=settings()))
    await call.write(say(TEXT))
    await call.write(end())
    transcript = Transcript()
    while len(transcript.pcm.get("u1", b"")) < 48 * 2500:
        await read_until(call, transcript, "audio")
    await call.write(cancel("u1", played_ms=2000))
    await call.done_writing()
    await read_all(call, transcript)
    heard = [mark for mark in transcript.marks["u1"] if mark.start_ms < 2000]
    chars = transcript.done["u1"].stats.spoken_chars
    assert chars in (heard[-1].text_end, heard[-2].text_end), "whole words, up to the one that is being spoken"


@pytest.mark.parametrize(
    ("text", "seed", "cuts_ms"),
    [(TEXT, 5, [560, 2400]), ("Words may come one by one, and none of them is lost. Not even now.", 7, [1450, 3000])],
    ids=["in words", "in pauses"],
)
async def test_after_lost_connections_words_are_told_as_if_nothing_had_been(
    server: ServerProcess, stub: Any, text: str, seed: int, cuts_ms: list[int]
) -> None:
    synthesis = {"voice": {"voice_id": "linden"}}
    whole = (await speak(stub, [settings(seed, **synthesis), say(text), end()])).marks["u1"]
    marks: list[synthesis_pb2.Mark] = []
    num_samples, cuts_ms = 0, [*cuts_ms]
    async with (
        CuttingProxy(server.port) as proxy,
        SpeechClient(f"127.0.0.1:{proxy.port}") as client,
        client.speak(synthesis_config(seed=seed, voice="linden"), timestamps=True, max_lead_ms=200) as session,
    ):
        await session.send_text(text)
        await session.finish()
        async for event in session:
            match event.payload:
                case AudioChunk() as audio:
                    num_samples += audio.num_samples
                    if cuts_ms and num_samples >= 24 * cuts_ms[0] and proxy.cut():
                        del cuts_ms[0]
                case Marks() as told:
                    marks += told.marks
    assert not cuts_ms
    assert_words_of(marks, text, num_samples / 24)
    for mark, usual in zip(marks, whole, strict=True):
        # Of the first frame after a loss, the engine reports no position.
        assert mark.start_ms == pytest.approx(usual.start_ms, abs=FRAME_MS), mark.text


async def test_progress_marks_stay_estimates(stub: Any) -> None:
    config = settings()
    config.timestamps = synthesis_pb2.TIMESTAMP_MODE_PROGRESS
    transcript = await speak(stub, [config, say(TEXT), end()])
    assert all(mark.estimated for mark in transcript.marks["u1"])


async def test_the_command_line_writes_subtitles(server: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "said.srt"
    arguments = ["say", TEXT, "--wav", str(tmp_path / "said.wav"), "--subtitles", str(file), "--server", server.address]
    command = await asyncio.create_subprocess_exec(sys.executable, "-m", "sonorant.cli", *arguments)
    assert await command.wait() == 0
    number, times, text, *_ = file.read_text().splitlines()
    assert (number, text) == ("1", TEXT[: len(text)]) and re.fullmatch(r"00:00:00,\d{3} --> 00:00:0\d,\d{3}", times)
