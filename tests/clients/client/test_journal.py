"""What is said again to the next server, and which of its answers are news."""

import numpy as np
import pytest

from sonorant.client.journal import MAX_CODES_BYTES, Journal
from sonorant.service.audio.codes import CodesHeader
from sonorant.tts.v1.audio_pb2 import AudioChunk, SegmentCodes
from sonorant.tts.v1.speak_pb2 import Alive, Cancel, Committed, Flush, FlushDone, GoAway, PlaybackReport, SpeakResponse
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


@pytest.mark.parametrize(("num_codebooks", "bits"), [(16, 11), (4, 6), (3, 15)])
def test_packed_codes_are_said_again_as_they_are_taken(num_codebooks: int, bits: int) -> None:
    codes = (np.arange(5 * num_codebooks).reshape(5, -1) * 7919 % (1 << bits)).astype(np.int16)
    packed = CodesHeader(num_codebooks, bits, 24_000, 1920, "", "").pack(codes)
    half = len(packed) // 5 * 2
    journal = Journal(None)
    journal.text("", "one")
    journal.take(says(started=UtteranceStarted(codebooks=num_codebooks, code_bits=bits)))
    journal.take(audio(1, SegmentCodes(packed=packed[:half])))
    journal.take(audio(1, SegmentCodes(packed=packed[half:], offset=2 * num_codebooks * 2)))
    resume, *_ = journal.again()
    (segment,) = resume.resume.segments
    assert segment.codes == codes.astype("<u2").tobytes() and not segment.packed


def test_something_is_due_while_the_present_server_has_something_open() -> None:
    journal = Journal(None)
    assert not journal.waits and not journal.take(SpeakResponse(alive=Alive()))
    begun(journal)
    assert journal.waits and not journal.take(SpeakResponse(alive=Alive()))
    journal.end("")
    journal.take(says(done=UtteranceDone(reason=FINISH_REASON_COMPLETED)))
    assert not journal.waits
    journal.text("u1", "an id that is over")
    assert journal.waits
    journal.take(says(warning=Warning(code="NO_ACTIVE_UTTERANCE")))
    assert not journal.waits, "the server has not opened it"
    journal.take(SpeakResponse(go_away=GoAway()))
    journal.text("b", "for another server")
    assert not journal.waits


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
