"""What waits for a server is bounded, and its end and its cancel are not stuck behind the bound."""

import pytest

from sonorant.gateway.errors import Refusal
from sonorant.gateway.web.feed import MAX_WAITING_CHARS, Feed
from sonorant.tts.v1.speak_pb2 import SpeakRequest

FLUSH = SpeakRequest(flush={"flush_id": 1})


def test_text_that_is_refused_takes_no_place() -> None:
    feed = Feed()
    feed.put(SpeakRequest(text="a"))
    for _ in range(2):
        with pytest.raises(Refusal):
            feed.put(SpeakRequest(text="b" * MAX_WAITING_CHARS))
    feed.put(SpeakRequest(text="c" * (MAX_WAITING_CHARS - 1)))
    for more in (SpeakRequest(text="d"), FLUSH):
        with pytest.raises(Refusal):
            feed.put(more)


def test_an_end_or_a_cancel_is_always_taken() -> None:
    feed = Feed()
    feed.put(SpeakRequest(text="a" * MAX_WAITING_CHARS))
    feed.put(SpeakRequest(end={}))
    feed.put(SpeakRequest(cancel={}))


def test_flushes_are_bounded_too() -> None:
    feed = Feed()
    with pytest.raises(Refusal):
        for _ in range(MAX_WAITING_CHARS):
            feed.put(FLUSH)
