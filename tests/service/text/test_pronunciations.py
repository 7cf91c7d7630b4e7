"""Respelled phrases: against a plain search, cut anywhere, and spoken through a real server."""

from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonorant.service.text.pronunciations import MAX_PHRASE_CHARS, Respeller, check_pronunciations
from sonorant.tts.v1 import speak_pb2
from sonorant.tts.v1.text_to_speech_service_pb2 import SynthesizeRequest
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import spoken
from tests.service.harness import Transcript, config, end, failure, flush, read_all, read_until, say, served, speak

CHARS = "ab &1你\n"


def lexicon(entries: dict[str, str]) -> Any:
    return check_pronunciations(entries, "pronunciations")


def plainly(entries: dict[str, str], text: str) -> str:
    """The rule in so many words."""
    said, position = "", 0
    while position < len(text):
        here = []
        for phrase in entries:
            end = position + len(phrase)
            before, after = text[position - 1 : position] if position else "", text[end : end + 1]
            inside = any(
                left.isalnum() and right.isalnum() and "你" not in left + right
                for left, right in ((before, phrase[0]), (phrase[-1], after))
            )
            if text[position:end] == phrase and not inside:
                here.append(phrase)
        longest = max(here, key=len, default="")
        said += entries[longest] if longest else text[position]
        position += len(longest) or 1
    return said


PHRASES = st.text(CHARS, min_size=1, max_size=4).filter(lambda phrase: phrase == phrase.strip())


@given(
    st.dictionaries(PHRASES, st.sampled_from(["x", "ab", "a&b 1", "你"]), max_size=5),
    st.lists(st.text(CHARS, max_size=6), max_size=8),
)
def test_any_cutting_says_what_a_plain_search_of_the_text_says(entries: dict[str, str], pieces: list[str]) -> None:
    text = "".join(pieces)
    known = lexicon(entries)
    assert known.respell(text) == plainly(entries, text)
    respeller, said = Respeller(known), ""
    for piece in pieces:
        said += respeller.push(piece)
        assert len(respeller._held) <= max(map(len, entries), default=0)
    assert said + respeller.flush() == known.respell(text)


def test_nothing_is_held_back_that_no_phrase_can_begin_with() -> None:
    respeller = Respeller(lexicon({"SQL": "sequel", "New York City": "the city", "C++": "see plus plus"}))
    assert respeller.push("I know ") == "I know "
    assert respeller.push("SQ") == ""
    assert respeller.push("UARE") == "SQUARE"
    assert respeller.push(" New York") == " "
    assert respeller.push(" is. SQL") == "New York is. "
    assert respeller.push("'s C++") == "sequel's see plus plus", "no word goes on after a sign"
    assert respeller.push(" startSQL SQL") == " startSQL "
    assert respeller.flush() == "sequel"


@pytest.mark.parametrize(
    ("entries", "hint"),
    [
        ({"": "a"}, "not be empty"),
        ({" a": "b"}, "white space"),
        ({"a": "?!"}, "no letter or digit"),
        ({"a\x07": "b"}, "U+0007"),
        ({"a" * (MAX_PHRASE_CHARS + 1): "b"}, "limit of 64"),
        ({"a": "b" * 200}, "limit of 128"),
        ({f"a{n}": "b" for n in range(101)}, "limit of 100"),
    ],
)
async def test_what_cannot_be_a_pronunciation_is_refused(entries: dict[str, str], hint: str) -> None:
    async with served(FakeEngine()) as server:
        request = SynthesizeRequest(text="Hello", config={"pronunciations": entries})
        code, message, details = await failure(server.stub.Synthesize(request))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert hint in message
        assert details["BadRequest"].field_violations[0].field.startswith("config.pronunciations")


SPOKEN = {"SQL": "sequel", "你好": "nihao", "&": "and"}


async def test_respelled_words_are_spoken_however_they_come_and_marks_keep_to_the_raw_text() -> None:
    text = "SQL & you, 你好吗. SQLite"
    said = "sequel and you, nihao吗. SQLite"
    async with served(FakeEngine()) as server:
        settings = {"sampling": {"seed": 7}, "pronunciations": SPOKEN}
        clip = await server.stub.Synthesize(SynthesizeRequest(text=text, config=settings, timestamps=1))
        assert clip.audio == spoken(said, 7)
        assert clip.stats.input_chars == clip.stats.spoken_chars == len(text)
        marked = [(mark.text, text[mark.text_start : mark.text_end]) for mark in clip.marks]
        assert [word for word, _ in marked] == ["SQL", "&", "you,", "你", "好", "吗", "SQLite"]
        assert all(word == raw for word, raw in marked)
        transcript = await speak(server.stub, [config(**settings), *map(say, text)])
        assert transcript.pcm["u1"] == spoken(said, 7)


async def test_a_flush_and_the_end_speak_what_is_held_back() -> None:
    async with served(FakeEngine()) as server:
        settings = config(sampling={"seed": 7}, pronunciations=SPOKEN)
        transcript = await speak(server.stub, [settings, say("SQ"), flush(1), say("L or SQL"), end()])
        assert transcript.pcm["u1"] == spoken("SQ", 7) + spoken("L or sequel", 7)


async def test_a_sign_that_is_respelled_is_enough_to_speak() -> None:
    async with served(FakeEngine()) as server:
        transcript = await speak(server.stub, [config(sampling={"seed": 7}, pronunciations=SPOKEN), say("&")])
        assert transcript.pcm["u1"] == spoken("and", 7)
        assert not transcript.warnings
        assert transcript.done["u1"].stats.first_audio_ms < 1000


async def test_a_pause_speaks_what_is_held_back() -> None:
    async with served(FakeEngine()) as server:
        call, transcript = server.stub.Speak(), Transcript()
        settings = config(sampling={"seed": 7}, pronunciations=SPOKEN)
        settings.text_policy.max_buffer_delay_ms = 50
        for request in (speak_pb2.SpeakRequest(config=settings), say("I know SQL")):
            await call.write(request)
        while len(transcript.pcm.get("u1", b"")) < len(spoken("I know sequel")):
            await read_until(call, transcript, "audio")
        await call.done_writing()
        await read_all(call, transcript)
        assert transcript.pcm["u1"] == spoken("I know sequel", 7)


ENTRIES = st.dictionaries(PHRASES, st.sampled_from(["x", "ab"]), max_size=6)


@given(ENTRIES, ENTRIES)
def test_a_lexicon_over_another_is_the_lexicon_of_both(over: dict[str, str], under: dict[str, str]) -> None:
    joined = lexicon(over).over(lexicon(under))
    both = lexicon({**under, **over})
    assert {first: dict(entries) for first, entries in joined.entries.items()} == {
        first: dict(entries) for first, entries in both.entries.items()
    }
    for entries in joined.entries.values():
        lengths = [len(phrase) for phrase, _ in entries]
        assert lengths == sorted(lengths, reverse=True)
