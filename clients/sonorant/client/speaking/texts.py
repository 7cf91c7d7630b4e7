"""Joins the text requests of one utterance, and applies revisions to them. Pure."""

from collections.abc import Iterator, Sequence

from sonorant.tts.v1.speak_pb2 import Revise, SpeakRequest


def joined(requests: Sequence[SpeakRequest]) -> Iterator[SpeakRequest]:
    """Yield the requests with successive texts joined: the server does not care how a text is cut."""
    text: list[SpeakRequest] = []
    for request in requests:
        if request.HasField("text"):
            text.append(request)
            continue
        yield from _one(text)
        text = []
        yield request
    yield from _one(text)


def text_of(requests: Sequence[SpeakRequest]) -> str:
    """Return the text, with revisions applied in full."""
    done: list[SpeakRequest] = []
    for request in requests:
        done = apply(done, request.revise) if request.HasField("revise") else [*done, request]
    return "".join(request.text for request in done)


def apply(requests: Sequence[SpeakRequest], revise: Revise) -> list[SpeakRequest]:
    """Return the requests with their text replaced from `revise.from_char` on; flushes after that position are
    dropped."""
    kept: list[SpeakRequest] = []
    num_chars = 0
    for request in requests:
        if num_chars == revise.from_char and request.text:
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
