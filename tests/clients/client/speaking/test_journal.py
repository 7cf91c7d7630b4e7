"""Which requests are sent again to the next server, and which of its responses are new to the caller."""

import numpy as np
import pytest

from sonorant.client.speaking.journal import Journal
from sonorant.client.speaking.kept_utterance import MAX_CODES_BYTES
from sonorant.service.audio.codes import CodesHeader
from sonorant.tts.v1.audio_pb2 import AudioChunk, SegmentCodes
from sonorant.tts.v1.speak_pb2 import (
    Alive,
    Cancel,
    Committed,
    Flush,
    FlushDone,
    GoAway,
    PlaybackReport,
    SpeakConfig,
    SpeakResponse,
)
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

REPLAY = SynthesisConfig(sampling=Sampling(seed=7))


def response(**payload: object) -> SpeakResponse:
    return SpeakResponse(utterance_id="u1", **payload)


def begin(journal: Journal) -> None:
    assert journal.text("", "one ").utterance_id == "u1"
    assert journal.take(response(started=UtteranceStarted(replay=REPLAY, checkpoint="c1")))


def audio(num_samples: int, *codes: SegmentCodes) -> SpeakResponse:
    return response(audio=AudioChunk(data=b"xx" * num_samples, num_samples=num_samples, codes=codes))


def test_all_requests_of_an_open_utterance_are_sent_again_in_order() -> None:
    journal = Journal()
    begin(journal)
    journal.text("", "two ")
    journal.flush("", Flush(flush_id=3))
    journal.text("", "three")
    journal.take(audio(10, SegmentCodes(segment=0, codes=b"ab")))
    journal.take(
        audio(5, SegmentCodes(segment=0, codes=b"cd", offset=2, complete=True), SegmentCodes(segment=1, codes=b"ef"))
    )
    assert not journal.take(response(committed=Committed(chars=4)))
    journal.playback("", PlaybackReport(played_ms=80))
    journal.end("")
    resume, *rest = journal.requests_to_resend()
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


def test_an_utterance_that_has_not_started_is_simply_sent_again() -> None:
    journal = Journal()
    journal.text("mine", "one")
    assert [request.WhichOneof("payload") for request in journal.requests_to_resend()] == ["text"]


def test_a_one_shot_voice_is_added_to_the_resumed_config() -> None:
    journal = Journal(SpeakConfig(synthesis={"voice": {"design": "a calm voice"}}))
    begin(journal)
    assert next(journal.requests_to_resend()).resume.replay.voice.design == "a calm voice"


def test_repeated_responses_are_not_new() -> None:
    journal = Journal()
    begin(journal)
    first = [
        response(warning=Warning(code="SAMPLING_IGNORED", message="greedy")),
        response(marks=Marks(marks=[Mark(text="one", text_end=3, end_ms=90)])),
        response(flush_done=FlushDone(flush_id=3)),
    ]
    assert all(journal.take(each) for each in first)
    assert list(next(journal.requests_to_resend()).resume.marks) == [Mark(text_end=3, end_ms=90)]
    assert not journal.take(response(started=UtteranceStarted()))
    assert not journal.take(response(warning=Warning(code="SAMPLING_IGNORED", message="greedy")))
    both = response(marks=Marks(marks=[Mark(text="one", text_end=3), Mark(text="two", text_end=7)]))
    assert journal.take(both)
    assert [mark.text for mark in both.marks.marks] == ["two"]
    assert not journal.take(response(flush_done=FlushDone(flush_id=3)))
    assert journal.take(response(flush_done=FlushDone(flush_id=4)))
    assert journal.take(response(warning=Warning(code="RUNAWAY", message="silence")))


def test_words_of_one_place_in_the_text_are_all_told_once() -> None:
    """Those of a phrase that is said otherwise than written, such as an alias of SSML."""
    journal = Journal()
    begin(journal)
    world, wide, web = (Mark(text=each, text_end=9, start_ms=at, end_ms=at + 90) for each, at in
                        (("World", 0), ("Wide", 90), ("Web", 200)))  # fmt: skip
    assert all(journal.take(response(marks=Marks(marks=[each]))) for each in (world, wide, web))
    next(journal.requests_to_resend())
    again = response(marks=Marks(marks=[web, Mark(text="on", text_end=12, start_ms=300)]))
    assert journal.take(again)
    assert [mark.text for mark in again.marks.marks] == ["on"]


@pytest.mark.parametrize(("num_codebooks", "bits"), [(16, 11), (4, 6), (3, 15)])
def test_packed_codes_are_sent_again_unpacked(num_codebooks: int, bits: int) -> None:
    codes = (np.arange(5 * num_codebooks).reshape(5, -1) * 7919 % (1 << bits)).astype(np.int16)
    packed = CodesHeader(num_codebooks, bits, 24_000, 1920, "", "").pack(codes)
    half = len(packed) // 5 * 2
    journal = Journal()
    journal.text("", "one")
    journal.take(response(started=UtteranceStarted(codebooks=num_codebooks, code_bits=bits)))
    journal.take(audio(1, SegmentCodes(packed=packed[:half])))
    journal.take(audio(1, SegmentCodes(packed=packed[half:], offset=2 * num_codebooks * 2)))
    resume, *_ = journal.requests_to_resend()
    (segment,) = resume.resume.segments
    assert segment.codes == codes.astype("<u2").tobytes() and not segment.packed


def test_a_response_is_expected_while_the_current_server_has_an_utterance_open() -> None:
    journal = Journal()
    assert not journal.expects_response and not journal.take(SpeakResponse(alive=Alive()))
    begin(journal)
    assert journal.expects_response and not journal.take(SpeakResponse(alive=Alive()))
    journal.end("")
    journal.take(response(done=UtteranceDone(reason=FINISH_REASON_COMPLETED)))
    assert not journal.expects_response
    journal.text("u1", "an id that is over")
    assert journal.expects_response
    journal.take(response(warning=Warning(code="NO_ACTIVE_UTTERANCE")))
    assert not journal.expects_response, "the server has not opened it"
    journal.take(SpeakResponse(go_away=GoAway()))
    journal.text("b", "for another server")
    assert not journal.expects_response


def test_audio_messages_with_only_codes_are_not_new() -> None:
    journal = Journal()
    begin(journal)
    assert not journal.take(audio(0, SegmentCodes(codes=b"ab")))
    assert next(journal.requests_to_resend()).resume.received_chunks == 0


def test_an_utterance_that_is_done_is_not_sent_again() -> None:
    journal = Journal()
    begin(journal)
    journal.end("")
    assert journal.take(response(done=UtteranceDone(reason=FINISH_REASON_COMPLETED)))
    assert not journal.unfinished
    assert list(journal.requests_to_resend()) == []


def test_the_rest_of_the_text_of_an_utterance_that_ended_early_is_not_sent() -> None:
    journal = Journal()
    begin(journal)
    journal.take(response(done=UtteranceDone(reason=FINISH_REASON_MAX_AUDIO)))
    assert list(journal.requests_to_resend()) == []
    assert journal.text("", "the rest of it") is None
    assert journal.end("") is None
    assert journal.text("", "another").utterance_id == "u2"


def test_a_cancelled_utterance_is_not_resumed() -> None:
    journal = Journal()
    begin(journal)
    journal.cancel("", Cancel())
    (done,) = journal.drop_cancelled(is_lost=True)
    assert done.utterance_id == "u1" and done.done.reason == FINISH_REASON_CANCELLED
    assert list(journal.requests_to_resend()) == []


def test_a_server_that_goes_away_is_sent_no_new_utterance() -> None:
    journal = Journal()
    begin(journal)
    journal.end("")
    journal.take(SpeakResponse(go_away=GoAway()))
    assert journal.text("", "two") is None
    assert journal.end("") is None
    assert journal.holds_back
    journal.take(response(done=UtteranceDone(reason=FINISH_REASON_COMPLETED)))
    assert [(each.utterance_id, each.WhichOneof("payload")) for each in journal.requests_to_resend()] == [
        ("u2", "text"),
        ("u2", "end"),
    ]
    assert not journal.holds_back


def test_codes_beyond_the_limit_are_dropped_and_only_the_seed_is_sent() -> None:
    journal = Journal()
    begin(journal)
    for _ in range(3):
        journal.take(audio(1, SegmentCodes(codes=bytes(MAX_CODES_BYTES // 2), offset=MAX_CODES_BYTES)))
    resume = next(journal.requests_to_resend()).resume
    assert not resume.segments and resume.received_samples == 3
