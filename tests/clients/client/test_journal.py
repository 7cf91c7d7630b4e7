"""What is said again to the next server, and which of its answers are news."""

from sonorant.client.journal import MAX_CODES_BYTES, Journal
from sonorant.tts.v1.audio_pb2 import AudioChunk, SegmentCodes
from sonorant.tts.v1.speak_pb2 import Cancel, Committed, Flush, FlushDone, GoAway, PlaybackReport, SpeakResponse
from sonorant.tts.v1.synthesis_pb2 import (
    FINISH_REASON_CANCELLED,
    FINISH_REASON_COMPLETED,
    FINISH_REASON_MAX_AUDIO,
    Mark,
    Marks,
    Sampling,
    SynthesisConfig,
    UtteranceDone,
    UtteranceStarted,
    Warning,
)
from sonorant.tts.v1.voice_pb2 import VoiceSelector

REPLAY = SynthesisConfig(sampling=Sampling(seed=7))


def says(**payload: object) -> SpeakResponse:
    return SpeakResponse(utterance_id="u1", **payload)


def begun(journal: Journal) -> None:
    assert journal.text("", "one ").utterance_id == "u1"
    assert journal.take(says(started=UtteranceStarted(replay=REPLAY, checkpoint="c1")))


def audio(num_samples: int, *codes: SegmentCodes) -> SpeakResponse:
    return says(audio=AudioChunk(data=b"xx" * num_samples, num_samples=num_samples, codes=codes))


def test_everything_of_an_open_utterance_is_said_again_in_order() -> None:
    journal = Journal(None)
    begun(journal)
    journal.text("", "two ")
    journal.flush("", Flush(flush_id=3))
    journal.text("", "three")
    journal.take(audio(10, SegmentCodes(segment=0, codes=b"ab")))
    journal.take(
        audio(5, SegmentCodes(segment=0, codes=b"cd", offset=2, complete=True), SegmentCodes(segment=1, codes=b"ef"))
    )
    assert not journal.take(says(committed=Committed(chars=4)))
    journal.playback("", PlaybackReport(played_ms=80))
    journal.end("")
    resume, *rest = journal.again()
    assert resume.resume.replay == REPLAY and resume.resume.checkpoint == "c1"
    assert (resume.resume.received_samples, resume.resume.received_chunks, resume.resume.played_ms) == (15, 2, 80)
    assert [(each.segment, each.codes, each.complete) for each in resume.resume.segments] == [
        (0, b"abcd", True),
        (1, b"ef", False),
    ]
    assert list(resume.resume.committed_chars) == [4]
    assert [request.WhichOneof("payload") for request in rest] == ["text", "flush", "text", "end"]
    assert (rest[0].text, rest[2].text) == ("one two ", "three")
    assert {request.utterance_id for request in rest} == {"u1"}


def test_an_utterance_without_a_receipt_is_simply_sent_again() -> None:
    journal = Journal(None)
    journal.text("mine", "one")
    assert [request.WhichOneof("payload") for request in journal.again()] == ["text"]


def test_a_one_shot_voice_is_added_to_its_receipt() -> None:
    journal = Journal(VoiceSelector(design="a calm voice"))
    begun(journal)
    assert next(journal.again()).resume.replay.voice.design == "a calm voice"


def test_what_comes_a_second_time_is_no_news() -> None:
    journal = Journal(None)
    begun(journal)
    first = [
        says(warning=Warning(code="SAMPLING_IGNORED", message="greedy")),
        says(marks=Marks(marks=[Mark(text="one", text_end=3)])),
        says(flush_done=FlushDone(flush_id=3)),
    ]
    assert all(journal.take(response) for response in first)
    list(journal.again())
    assert not journal.take(says(started=UtteranceStarted()))
    assert not journal.take(says(warning=Warning(code="SAMPLING_IGNORED", message="greedy")))
    both = says(marks=Marks(marks=[Mark(text="one", text_end=3), Mark(text="two", text_end=7)]))
    assert journal.take(both)
    assert [mark.text for mark in both.marks.marks] == ["two"]
    assert not journal.take(says(flush_done=FlushDone(flush_id=3)))
    assert journal.take(says(flush_done=FlushDone(flush_id=4)))
    assert journal.take(says(warning=Warning(code="RUNAWAY", message="silence")))


def test_codes_alone_are_no_news() -> None:
    journal = Journal(None)
    begun(journal)
    assert not journal.take(audio(0, SegmentCodes(codes=b"ab")))
    assert next(journal.again()).resume.received_chunks == 0


def test_what_is_done_is_not_said_again() -> None:
    journal = Journal(None)
    begun(journal)
    journal.end("")
    assert journal.take(says(done=UtteranceDone(reason=FINISH_REASON_COMPLETED)))
    assert not journal.unfinished
    assert list(journal.again()) == []


def test_the_rest_of_an_utterance_that_ended_early_is_swallowed_by_the_next_server_too() -> None:
    journal = Journal(None)
    begun(journal)
    journal.take(says(done=UtteranceDone(reason=FINISH_REASON_MAX_AUDIO)))
    assert list(journal.again()) == []
    assert journal.text("", "the rest of it") is None
    assert journal.end("") is None
    assert journal.text("", "another").utterance_id == "u2"


def test_a_cancelled_utterance_is_over_with_its_server() -> None:
    journal = Journal(None)
    begun(journal)
    journal.cancel("", Cancel())
    (owed,) = journal.cancelled()
    assert owed.utterance_id == "u1" and owed.done.reason == FINISH_REASON_CANCELLED
    assert list(journal.again()) == []


def test_a_server_that_goes_is_sent_nothing_new() -> None:
    journal = Journal(None)
    begun(journal)
    journal.end("")
    journal.take(SpeakResponse(go_away=GoAway()))
    assert journal.text("", "two") is None
    assert journal.end("") is None
    assert journal.holds_back
    journal.take(says(done=UtteranceDone(reason=FINISH_REASON_COMPLETED)))
    assert [(each.utterance_id, each.WhichOneof("payload")) for each in journal.again()] == [
        ("u2", "text"),
        ("u2", "end"),
    ]
    assert not journal.holds_back


def test_codes_beyond_the_bound_are_dropped_and_the_seed_has_to_do() -> None:
    journal = Journal(None)
    begun(journal)
    for _ in range(3):
        journal.take(audio(1, SegmentCodes(codes=bytes(MAX_CODES_BYTES // 2), offset=MAX_CODES_BYTES)))
    resume = next(journal.again()).resume
    assert not resume.segments and resume.received_samples == 3
