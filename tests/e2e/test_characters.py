"""Text as people and language models write it sounds as the plain text does, from the real server."""

import pytest

from sonorant.tts.v1 import explain_pb2, speak_pb2, synthesis_pb2, text_to_speech_service_pb2
from tests.service.harness import Stub, config, end, say, speak

# As it is written, and plain. The voice knows ASCII, and letters of Spanish and Italian.
WRITTEN = {
    "apostrophes": ("I’m sure we don’t need it.", "I'm sure we don't need it."),
    "quotes and dashes": ("“Wait”—she said…", '"Wait" - she said...'),
    "line breaks": (
        "Good evening.\nThank you.\r\n\r\nGood\u2028night.\fBye.",
        "Good evening. Thank you. Good night. Bye.",
    ),
    "blanks": ("Good\u00a0evening,\u202fand\u3000thank\u2009you.", "Good evening, and thank you."),
    "full width": ("Ｈｅｌｌｏ　ｗｏｒｌｄ．", "Hello world."),
    "mathematical letters": ("𝐇𝐞𝐥𝐥𝐨 𝓦𝓸𝓻𝓵𝓭.", "Hello World."),
    "letters in squares and circles": ("🅷🄴🅻🅻🅾 ⓦⓞⓡⓛⓓ.", "HELLO world."),
    "signs of romanization": ("Hawaiʻi, ↁ عن.", "Hawai'i, five thousand 'n."),
    "numbers": (
        "250 guests for $5.50 at 7:45.",
        "two hundred and fifty guests for five dollars and fifty cents at seven forty five.",
    ),
    "languages": ("Son 21. The list is 21.", "Son veintiuno. The list is twenty one."),
    "exponents, fractions": ("10²³ of x², and 1½.", "ten to the twenty three of x squared, and one and one half."),
    "unheard": ("\ufeffHel\u00adlo\u200b wor\u2060ld\ufe0f.", "Hello world."),
    "emoji": ("Hello world.😀👨\u200d👩\u200d👧", "Hello world."),
    "accents": ("A naïve cafe\u0301 in Malmö.", "A naive café in Malmo."),
}


@pytest.mark.parametrize("kind", WRITTEN)
async def test_it_sounds_as_the_plain_text(stub: Stub, kind: str) -> None:
    made = [
        await stub.Synthesize(text_to_speech_service_pb2.SynthesizeRequest(text=text, config={"sampling": {"seed": 1}}))
        for text in WRITTEN[kind]
    ]
    assert made[0].audio == made[1].audio and made[0].reason == synthesis_pb2.FINISH_REASON_COMPLETED


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("\u0627 \u0640\u0640", ["NO_SPEAKABLE_TEXT"]),
        ("\u0627.", ["NO_SPEAKABLE_TEXT"]),
        ("ь! א, 㧝?", ["NO_SPEAKABLE_TEXT"]),
        ("So \u0627.", ["WORDS_LEFT_OUT"]),
        ("🅷🅸", []),
    ],
)
async def test_letters_that_the_voice_lacks_are_told(stub: Stub, text: str, code: list[str]) -> None:
    clip = await stub.Synthesize(text_to_speech_service_pb2.SynthesizeRequest(text=text))
    assert [warning.code for warning in clip.warnings] == code
    assert bool(clip.audio) == (code != ["NO_SPEAKABLE_TEXT"])
    explained = await stub.Explain(explain_pb2.ExplainRequest(text=text))
    assert [warning.code for warning in explained.warnings] == (["WORDS_LEFT_OUT"] if code else [])
    spoken = await speak(stub, [config(), *map(say, text), end()])
    assert [warned for _, warned in spoken.warnings] == code
    assert [warning.code for warning in spoken.done["u1"].warnings] == code


async def test_thoughts_that_never_end_are_told(stub: Stub) -> None:
    for text, codes in {
        "<think> so they": ["NO_SPEAKABLE_TEXT", "MARKUP_IGNORED"],
        "Hi.\n<think> so they": ["MARKUP_IGNORED"],
        "<think> so they</think>Hi.": [],
    }.items():
        spoken = await speak(stub, [config(text_format=synthesis_pb2.TEXT_FORMAT_MARKDOWN), *map(say, text), end()])
        assert [warned for _, warned in spoken.warnings] == codes
        assert bool(spoken.pcm.get("u1")) == ("NO_SPEAKABLE_TEXT" not in codes)


async def test_words_have_their_places_in_the_written_text(stub: Stub) -> None:
    text = "\ufeff“It’s”—so…\n\n😀 𝐧𝐚𝐢𝐯𝐞 of us."
    config = speak_pb2.SpeakConfig(timestamps=synthesis_pb2.TIMESTAMP_MODE_WORD, max_lead_ms=0)
    spoken = await speak(stub, [config, *map(say, text), end()])
    words = ["“It’s”—so…", "𝐧𝐚𝐢𝐯𝐞", "of", "us."]
    assert [mark.text.strip("\ufeff") for mark in spoken.marks["u1"]] == words
    assert [text[mark.text_start : mark.text_end] for mark in spoken.marks["u1"]] == [
        mark.text for mark in spoken.marks["u1"]
    ]
    assert spoken.done["u1"].stats.spoken_chars == spoken.done["u1"].stats.input_chars == len(text)


async def test_explain_shows_what_became_of_each_character(stub: Stub) -> None:
    told = await stub.Explain(
        explain_pb2.ExplainRequest(text="I’m in SQL🎉now.", config={"pronunciations": {"SQL": "sequel"}})
    )
    assert told.text == "I'm in sequel now."
    assert [(each.text_start, each.written, each.given) for each in told.changes] == [(1, "’", "'"), (10, "🎉", " ")]
