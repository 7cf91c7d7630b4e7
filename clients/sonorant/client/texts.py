"""The text of one utterance as the requests that it came in: joined, and with revisions applied. Pure."""

from collections.abc import Iterator, Sequence

from sonorant.tts.v1.speak_pb2 import Revise, SpeakRequest


def joined(requests: Sequence[SpeakRequest]) -> Iterator[SpeakRequest]:
    """Texts in succession as one, since any cutting of a text is the same text; revisions as if they held in full."""
    done: list[SpeakRequest] = []
    for request in requests:
        done = apply(done, request.revise) if request.HasField("revise") else [*done, request]
    text: list[SpeakRequest] = []
    for request in done:
        if request.HasField("text"):
            text.append(request)
            continue
        yield from _one(text)
        text = []
        yield request
    yield from _one(text)


def apply(requests: Sequence[SpeakRequest], revise: Revise) -> list[SpeakRequest]:
    """Texts and flushes with another text from a place on: flushes behind it are gone."""
    kept: list[SpeakRequest] = []
    num_chars = 0
    for request in requests:
        if num_chars == revise.from_char and request.HasField("text"):
            break
        if num_chars + len(request.text) > revise.from_char:
            cut = request.text[: revise.from_char - num_chars]
            kept.append(SpeakRequest(utterance_id=request.utterance_id, text=cut))
            break
        kept.append(request)
        num_chars += len(request.text)
    utterance_id = requests[0].utterance_id if requests else ""
    return [*kept, SpeakRequest(utterance_id=utterance_id, text=revise.text)] if revise.text else kept


def _one(texts: Sequence[SpeakRequest]) -> Iterator[SpeakRequest]:
    if texts:
        yield SpeakRequest(utterance_id=texts[0].utterance_id, text="".join(request.text for request in texts))
