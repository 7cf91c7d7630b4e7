"""Requests with revisions applied are the text that a server makes of them."""

from hypothesis import example, given
from hypothesis import strategies as st

from sonorant.client.speaking.texts import apply, joined, text_of
from sonorant.tts.v1.speak_pb2 import Flush, Revise, SpeakRequest

PIECES = st.text("ab ", max_size=4)
REQUESTS = st.lists(st.one_of(PIECES, st.integers(1, 9)), max_size=12)


def request(what: str | int) -> SpeakRequest:
    return SpeakRequest(text=what) if isinstance(what, str) else SpeakRequest(flush=Flush(flush_id=what))


def flat(requests: list[SpeakRequest]) -> list[str | int]:
    """Characters and flushes."""
    return [each for one in requests for each in (list(one.text) if one.HasField("text") else [one.flush.flush_id])]


@given(REQUESTS, st.integers(0, 60), PIECES)
@example(["", 1], 0, "")
def test_text_and_flushes_after_the_position_are_dropped_and_flushes_at_it_stay(
    made: list[str | int], from_char: int, text: str
) -> None:
    requests = [request(what) for what in made]
    kept, num_chars = [], 0
    for each in flat(requests):
        if isinstance(each, str):
            if num_chars == from_char:
                break
            num_chars += 1
        kept.append(each)
    revise = Revise(from_char=min(from_char, sum(len(one.text) for one in requests)), text=text)
    assert flat(apply(requests, revise)) == kept + list(text)
    revised = [*requests, SpeakRequest(revise=revise), request("x")]
    assert text_of(revised) == "".join(each for each in [*kept, *text, "x"] if isinstance(each, str))
    assert [one for one in joined(revised) if one.HasField("revise")] == [SpeakRequest(revise=revise)]
