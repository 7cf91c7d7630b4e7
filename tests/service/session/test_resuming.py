"""An utterance that breaks off anywhere goes on in another session, sample by sample, as if nothing had been.

The client's own journal makes the requests, so both halves of the contract are held against each other. The fake
engine's audio is a function of text and frame, and it refuses codes that do not belong to the text.
"""

import io
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from sonorant.client.speaking.journal import Journal
from sonorant.service.audio.codes import parse
from sonorant.service.audio.opus import available
from sonorant.tts.v1 import audio_pb2, speak_pb2, synthesis_pb2
from tests.service.fake_engine import FakeEngine
from tests.service.fake_speech import FRAME_SAMPLES, FRAMES_PER_CHAR, NUM_CODEBOOKS, spoken
from tests.service.harness import Served, codes_told, details_of, end, say, served
from tests.service.session._support import converse

TEXT = "Hello there. How are you? "
RATE_HZ = 24_000
SEED = {"seed": 7}
SENTENCES = {"mode": speak_pb2.COMMIT_MODE_SENTENCE}
Script = list[speak_pb2.SpeakRequest | None]


def config(policy: dict[str, Any] | None = None, **synthesis: Any) -> speak_pb2.SpeakConfig:
    return speak_pb2.SpeakConfig(
        synthesis=synthesis_pb2.SynthesisConfig(sampling=SEED, **synthesis),
        text_policy=policy,
        max_lead_ms=0,
        resumable=True,
    )


def script(journal: Journal) -> Script:
    """Two sentences with a flush and a pause between, in pieces, and a third."""
    return [
        journal.text("", TEXT[:7]),
        journal.text("", TEXT[7:]),
        journal.flush("", speak_pb2.Flush(flush_id=1, pause_ms=130)),
        journal.text("", "And so on."),
        journal.end(""),
    ]


async def heard(
    server: Served,
    speak: speak_pb2.SpeakConfig,
    breaks_after: Iterable[int] = (),
    write: Callable[[Journal], Script] = script,
) -> list[Any]:
    """What the client's caller is told, by kind; each call breaks off after so many news, but for the last."""
    journal = Journal()
    speak.pack_codes = True
    requests: Script = [speak_pb2.SpeakRequest(config=speak), *write(journal)]
    news: list[Any] = []
    packs = True
    for limit in [*breaks_after, None]:
        count = 0
        async for response in converse(server, requests):
            if response.HasField("session"):
                assert response.session.resumable
                continue
            assert all(
                bool(told.packed) == (packs and bool(told.packed or told.codes)) for told in response.audio.codes
            )
            if journal.take(response):
                news.append(response)
                count += 1
            if count == limit:
                break
        speak.pack_codes = packs = not packs  # the next server may not know how
        requests = [speak_pb2.SpeakRequest(config=speak), *journal.requests_to_resend()]
    return news


def audio(news: list[Any]) -> bytes:
    return b"".join(response.audio.data for response in news if response.HasField("audio"))


def others(news: list[Any]) -> list[str]:
    return [kind for response in news if (kind := response.WhichOneof("payload")) not in ("audio", "marks")]


@pytest.mark.slow
@pytest.mark.parametrize("policy", [None, SENTENCES])
@pytest.mark.parametrize(
    ("encoding", "fields"),
    [
        (audio_pb2.AUDIO_ENCODING_PCM_S16LE, {}),
        (audio_pb2.AUDIO_ENCODING_WAV, {"sample_rate_hz": 16_000}),
        (audio_pb2.AUDIO_ENCODING_PCM_S16LE, {"sample_rate_hz": 48_000, "frame_duration_ms": 30}),
        (audio_pb2.AUDIO_ENCODING_MULAW, {}),
    ],
)
async def test_the_audio_is_that_of_an_unbroken_session_wherever_it_breaks(
    encoding: int, fields: dict[str, int], policy: dict[str, Any] | None
) -> None:
    speak = config(policy, audio=audio_pb2.AudioFormat(encoding=encoding, **fields))
    async with served(FakeEngine()) as server:
        whole = await heard(server, speak)
        for limit in range(1, len(whole), 1 + len(whole) // 20):
            broken = await heard(server, speak, [limit])
            assert audio(broken) == audio(whole), limit
            assert others(broken) == others(whole), limit


@pytest.mark.parametrize("policy", [None, SENTENCES])
async def test_codes_go_on_where_they_were(policy: dict[str, Any] | None) -> None:
    """Their records may be cut otherwise; what they say is the same."""
    speak = config(policy, audio=audio_pb2.AudioFormat(encoding=audio_pb2.AUDIO_ENCODING_CODES))
    async with served(FakeEngine()) as server:
        whole = await heard(server, speak)
        stored = parse(audio(whole))
        assert [len(part) for part in stored.segments] == [len(part) * FRAMES_PER_CHAR for part in parts_of(policy)]
        for limit in range(1, len(whole), 3):
            broken = parse(audio(await heard(server, speak, [limit])))
            assert [np.asarray(part).tolist() for part in broken.parts] == [
                np.asarray(part).tolist() for part in stored.parts
            ], limit


def parts_of(policy: dict[str, Any] | None) -> list[str]:
    """What the segmenter makes of the script."""
    return [TEXT, "And so on."] if policy is None else ["Hello there. ", "How are you? ", "And so on."]


@pytest.mark.parametrize("silent_ms", [40, 160])
@pytest.mark.parametrize("rate_hz", [24_000, 16_000])
async def test_silence_that_was_not_sent_counts_for_nothing(silent_ms: int, rate_hz: int) -> None:
    speak = config(SENTENCES, audio=audio_pb2.AudioFormat(sample_rate_hz=rate_hz))
    speak.timestamps = synthesis_pb2.TIMESTAMP_MODE_PROGRESS
    async with served(FakeEngine(silent_ms=silent_ms)) as server:
        whole = await heard(server, speak)
        one, two, three = (spoken(part, 7)[48 * silent_ms :] for part in parts_of(SENTENCES))
        at_once = one + two + bytes(130 * 48) + three
        assert audio(whole) == at_once if rate_hz == 24_000 else len(audio(whole)) == len(at_once) * 2 // 3
        for limit in range(1, len(whole), 2):
            assert audio(await heard(server, speak, [limit])) == audio(whole), limit


@pytest.mark.parametrize("how", ['volume="-6dB"', 'rate="slow"', 'rate="fast"'])
async def test_a_manner_of_the_text_is_kept(how: str) -> None:
    speak = config(text_format=synthesis_pb2.TEXT_FORMAT_SSML)
    text = f"One <prosody {how}>two.</prosody> Three"

    def written(journal: Journal) -> Script:
        return [journal.text("", text), journal.end("")]

    async with served(FakeEngine()) as server:
        whole = await heard(server, speak, write=written)
        for limit in range(1, len(whole)):
            assert audio(await heard(server, speak, [limit], written)) == audio(whole), limit


async def test_markup_that_is_half_open_goes_on_where_it_was() -> None:
    """The text comes in again as it was written, so its marks mean the same wherever the audio broke off."""
    text = "# Hi\n**All of** [you](https://a.b), `see *this`:\n```\ncode\n```\n| a | b |\n|--|--|\n| 1 | 2 |\n*Bye*"

    def written(journal: Journal) -> Script:
        return [*(journal.text("", text[at : at + 5]) for at in range(0, len(text), 5)), journal.end("")]

    speak = config(text_format=synthesis_pb2.TEXT_FORMAT_MARKDOWN)
    speak.timestamps = synthesis_pb2.TIMESTAMP_MODE_PROGRESS
    async with served(FakeEngine()) as server:
        whole = await heard(server, speak, write=written)
        assert audio(whole) == spoken("Hi.\nAll of you, see *this:\n\ncode\n\na, b.\n\n1, 2.\nBye", 7)
        words = [mark.text_start for response in whole for mark in response.marks.marks]
        for limit in range(1, len(whole)):
            broken = await heard(server, speak, [limit], written)
            assert audio(broken) == audio(whole), limit
            assert [mark.text_start for response in broken for mark in response.marks.marks] == words, limit


async def test_behind_a_segment_without_a_word_it_goes_on_too() -> None:
    def written(journal: Journal) -> Script:
        return [
            journal.text("", "… "),
            journal.flush("", speak_pb2.Flush(flush_id=1)),
            journal.text("", "One. "),
            journal.flush("", speak_pb2.Flush(flush_id=2)),
            journal.text("", "… "),
            journal.flush("", speak_pb2.Flush(flush_id=3, pause_ms=130)),
            journal.text("", "Two."),
            journal.end(""),
        ]

    async with served(FakeEngine()) as server:
        whole = await heard(server, config(), write=written)
        for limit in range(1, len(whole)):
            broken = await heard(server, config(), [limit], written)
            assert audio(broken) == audio(whole), limit
            assert others(broken) == others(whole), limit


async def test_it_may_break_again_and_again_and_heard_frames_are_not_made_again() -> None:
    engine = FakeEngine()
    speak = config()
    async with served(engine) as server:
        whole = await heard(server, speak)
        made = engine.frames_made
        broken = await heard(server, speak, [4] * (len(whole) // 4 - 1))
        assert audio(broken) == audio(whole)
        made_before = engine.frames_made
        broken = await heard(server, speak, [len(whole) - 3])
        first_segment = len(TEXT) * FRAMES_PER_CHAR
        assert engine.frames_made - made_before <= made + made - first_segment  # which was all heard
        last = broken[-1].done
        assert last.reason == synthesis_pb2.FINISH_REASON_COMPLETED
        assert last.stats.codec_frames == whole[-1].done.stats.codec_frames == made


async def test_at_another_speed_it_is_made_again_from_the_seed() -> None:
    speak = config(speed=1.5)
    async with served(FakeEngine()) as server:
        whole = await heard(server, speak)
        for limit in (3, len(whole) // 2, len(whole) - 2):
            assert audio(await heard(server, speak, [limit])) == audio(whole)


@pytest.mark.skipif(not available(), reason="Opus needs PyAV")
async def test_pages_of_ogg_go_on_where_they_were() -> None:
    import av

    speak = config(audio=audio_pb2.AudioFormat(encoding=audio_pb2.AUDIO_ENCODING_OGG_OPUS))
    async with served(FakeEngine()) as server:
        whole = await heard(server, speak)
        for limit in (2, len(whole) // 3, len(whole) - 3):
            broken = await heard(server, speak, [limit])
            pages = [int.from_bytes(page[14:18], "little") for page in audio(broken).split(b"OggS")[1:]]
            assert pages == list(range(len(pages)))
            sizes = [
                sum(frame.samples for frame in av.open(io.BytesIO(audio(news))).decode(audio=0))
                for news in (whole, broken)
            ]
            assert sizes[0] == sizes[1]


async def test_marks_are_told_once_and_of_every_word() -> None:
    speak = config()
    speak.timestamps = synthesis_pb2.TIMESTAMP_MODE_PROGRESS
    async with served(FakeEngine()) as server:
        for breaks_after in ([6, 6], [5], [7], [9]):
            broken = await heard(server, speak, breaks_after)
            words = [mark.text for response in broken if response.HasField("marks") for mark in response.marks.marks]
            assert words == (TEXT + "And so on.").split(), breaks_after


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("played_ms", "spoken"), [(200, "Hello"), (600, "Hello there. How"), (810, TEXT.strip())])
async def test_a_cancel_counts_the_words_that_another_server_told(waits: bool, played_ms: int, spoken: str) -> None:
    """Whether it comes at once or after more audio. The fake speech is far slower than the marks."""
    speak = config()
    speak.timestamps = synthesis_pb2.TIMESTAMP_MODE_WORD
    journal = Journal()
    async with served(FakeEngine()) as server:
        received = 0
        requests = [speak_pb2.SpeakRequest(config=speak), journal.text("", TEXT + "And so on, and so on, and so on.")]
        async for response in converse(server, requests):
            if not response.HasField("session"):
                journal.take(response)
            if (received := received + response.audio.num_samples) > RATE_HZ:
                break
        requests = [speak_pb2.SpeakRequest(config=speak), *journal.requests_to_resend()]
        marks = [(180, 5), (390, 12), (560, 16), (700, 20), (800, 25)]
        (resume,) = (request.resume for request in requests if request.HasField("resume"))
        del resume.marks[:]
        resume.marks.extend(synthesis_pb2.Mark(end_ms=end_ms, text_end=text_end) for end_ms, text_end in marks)
        call = server.stub.Speak()
        for request in requests:
            await call.write(request)
        while waits and not (await call.read()).audio.num_samples:
            pass
        await call.write(journal.cancel("", speak_pb2.Cancel(played_ms=played_ms)))
        while not (response := await call.read()).HasField("done"):
            pass
        call.cancel()
    assert response.done.reason == synthesis_pb2.FINISH_REASON_CANCELLED
    assert response.done.stats.spoken_chars == len(spoken)


async def test_text_committed_for_want_of_more_is_committed_there_again() -> None:
    """In SENTENCE mode each such commit ends a segment, which is heard."""
    speak = config({**SENTENCES, "max_buffer_delay_ms": 10})
    engine = FakeEngine()
    async with served(engine) as server:
        journal = Journal()
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=speak))
        await call.write(journal.text("", "One and "))
        news = []
        while True:
            response = await call.read()
            if not response.HasField("session") and journal.take(response):
                news.append(response)
            if response.HasField("committed"):
                break
        call.cancel()
        journal.text("", "two.")
        journal.end("")
        requests = [speak_pb2.SpeakRequest(config=speak), *journal.requests_to_resend()]
        async for response in converse(server, requests):
            if not response.HasField("session") and journal.take(response):
                news.append(response)
    assert news[-1].done.stats.codec_frames * FRAME_SAMPLES * 2 == len(audio(news))
    assert [params.sampling.seed for params in engine.opened[-2:]] == [7, 7]


async def test_another_checkpoint_cannot_go_on_with_it() -> None:
    async with served(FakeEngine()) as server:
        resume = speak_pb2.Resume(checkpoint="another", replay=synthesis_pb2.SynthesisConfig(sampling=SEED))
        requests = [
            speak_pb2.SpeakRequest(config=config()),
            speak_pb2.SpeakRequest(utterance_id="u1", resume=resume),
            speak_pb2.SpeakRequest(utterance_id="u1", text="lost"),
            speak_pb2.SpeakRequest(utterance_id="u2", text="kept"),
        ]
        done = {each.utterance_id: each.done async for each in converse(server, requests) if each.HasField("done")}
    assert details_of(done["u1"].error)["ErrorInfo"].reason == "CHECKPOINT_DIFFERS"
    assert done["u2"].reason == synthesis_pb2.FINISH_REASON_COMPLETED


def numbered(count: int, num_frames: int) -> list[audio_pb2.SegmentCodes]:
    return [audio_pb2.SegmentCodes(segment=number, codes=bytes(8 * num_frames)) for number in range(count)]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"segments": [audio_pb2.SegmentCodes(segment=1, codes=bytes(8))]}, "resume.segments[0]"),
        ({"segments": [audio_pb2.SegmentCodes(segment=0, codes=bytes(7))]}, "resume.segments[0]"),
        ({"segments": numbered(1, 2001)}, "resume.segments[0]"),
        ({"segments": numbered(11, 2000)}, "resume.segments[10].codes: more than 20000 frames"),
        # Millions of them fit into a message, and once took everybody's event loop for seconds.
        ({"segments": numbered(4097, 0)}, "resume.segments: 4097 are over the limit"),
        ({"committed_chars": [1] * 4097}, "resume.committed_chars: 4097 are over the limit"),
        ({"marks": [synthesis_pb2.Mark()] * 20_001}, "resume.marks: 20001 are over the limit"),
        ({"received_samples": 2**63}, "resume.received_samples"),
    ],
)
async def test_codes_that_cannot_be_are_refused(fields: dict[str, Any], told: str) -> None:
    async with served(FakeEngine()) as server:
        resume = speak_pb2.Resume(
            checkpoint="0123456789abcdef",
            replay=synthesis_pb2.SynthesisConfig(sampling=SEED),
            **{"received_samples": 100_000, **fields},
        )
        requests = [
            speak_pb2.SpeakRequest(config=config()),
            speak_pb2.SpeakRequest(utterance_id="u1", resume=resume),
        ]
        done = [each.done async for each in converse(server, requests) if each.HasField("done")]
    assert done[0].reason == synthesis_pb2.FINISH_REASON_FAILED
    assert told in done[0].error.message


async def test_codes_are_told_only_to_those_who_ask() -> None:
    async with served(FakeEngine()) as server:
        requests = [speak_pb2.SpeakRequest(config=speak_pb2.SpeakConfig()), speak_pb2.SpeakRequest(text="Hello.")]
        responses = [response async for response in converse(server, requests)]
    assert not responses[0].session.resumable
    assert not any(response.audio.codes for response in responses)


async def test_codes_are_told_of_many_frames_at_once_and_of_none_too_late() -> None:
    speak = config()
    speak.max_lead_ms = 200  # a message for each frame
    async with served(FakeEngine()) as server:
        call = server.stub.Speak()
        for request in (speak_pb2.SpeakRequest(config=speak), say(TEXT), end()):
            await call.write(request)
        heard: list[Any] = []
        num_samples = 0
        while num_samples < 2 * len(TEXT) * FRAME_SAMPLES:
            if (response := await call.read()).HasField("audio"):
                heard.append(response)
                num_samples += response.audio.num_samples
                assert len(codes_told(heard)) >= num_samples // FRAME_SAMPLES * 2 * NUM_CODEBOOKS
                await call.write(speak_pb2.SpeakRequest(playback={"played_ms": 10**6}))
        call.cancel()
    assert len(heard) == 2 * len(TEXT) > 4 * sum(len(response.audio.codes) > 0 for response in heard)


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_revised_text_goes_on_revised(is_answered: bool) -> None:
    """Lost before its answer came, a revision is taken to hold in full."""
    engine = FakeEngine()
    async with served(engine) as server:
        engine.hold()
        journal = Journal()
        call = server.stub.Speak()
        await call.write(speak_pb2.SpeakRequest(config=config()))
        for request in (
            journal.text("", "Hello world. "),
            journal.flush("", speak_pb2.Flush(flush_id=1)),
            journal.revise("", speak_pb2.Revise(from_char=6, text="there. How")),
            journal.text("", " are you?"),
        ):
            await call.write(request)
        news = []
        while is_answered:
            response = await call.read()
            if response.HasField("revised"):
                assert list(response.revised.flush_ids) == [1]
                engine.release()
            if not response.HasField("session") and journal.take(response):
                news.append(response)
            if len(audio(news)) > 10 * FRAME_SAMPLES * 2:
                break
        call.cancel()
        journal.end("")
        requests = [speak_pb2.SpeakRequest(config=config()), *journal.requests_to_resend()]
        async for response in converse(server, requests):
            if response.HasField("revised"):
                engine.release()  # only now, or it would have said something of what is revised
            if not response.HasField("session") and journal.take(response):
                news.append(response)
    assert audio(news) == spoken("Hello there. How are you?", SEED["seed"])
    assert not any(response.HasField("flush_done") for response in news)
