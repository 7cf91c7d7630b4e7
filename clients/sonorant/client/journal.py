"""Keeps what a session must send again after the loss of its server, so that another one continues where that stopped.

Pure: it sees each request before it goes out and each response as it comes in, and does no I/O. It holds the text of
the open utterances, which the server limits, and their codes, up to a limit of its own.
"""

import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sonorant.client.texts import apply, joined
from sonorant.tts.v1.audio_pb2 import AudioChunk, SegmentCodes
from sonorant.tts.v1.speak_pb2 import (
    Cancel,
    EndUtterance,
    Flush,
    PlaybackReport,
    Resume,
    Revise,
    Revised,
    SpeakRequest,
    SpeakResponse,
)
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_CANCELLED, SynthesisConfig, UtteranceDone, UtteranceStarted
from sonorant.tts.v1.voice_pb2 import VoiceSelector

# Limit for one utterance: five minutes of speech. After a loss, a longer one is generated again from its seed.
MAX_CODES_BYTES = 128 * 1024
_ALL_UTTERANCES = "*"


class _Codes(NamedTuple):
    """Codes as they came, but not the message, which would keep its audio. Hardly a session needs them, so they are
    unpacked only when one does. They replace all codes of their segment from `offset` on."""

    offset: int
    data: bytes
    num_codebooks: int
    bits: int  # of a packed code; 0: they are not packed

    @property
    def unpacked(self) -> bytes:
        return unpacked(self.data, self.num_codebooks, self.bits) if self.bits else self.data

    @property
    def num_bytes(self) -> int:
        """How many there are when they are unpacked."""
        if not self.bits:
            return len(self.data)
        return len(self.data) // _frame_bytes(self.num_codebooks, self.bits) * 2 * self.num_codebooks


@dataclass(slots=True)
class _Segment:
    parts: list[_Codes] = field(default_factory=list)
    complete: bool = False
    draw: int = 0

    def codes(self) -> bytes:
        codes = bytearray()
        for part in self.parts:
            codes[part.offset :] = part.unpacked
        return bytes(codes)


@dataclass(slots=True)
class _Utterance:
    requests: list[SpeakRequest] = field(default_factory=list)  # text, flushes, end; revisions without an answer yet
    text_ended: bool = False
    # The utterance ended before its text did. The server discards the rest of the text, and so does the journal.
    over: bool = False
    cancelled: bool = False
    started: UtteranceStarted | None = None
    received_samples: int = 0
    received_chunks: int = 0
    segments: dict[int, _Segment] = field(default_factory=dict)
    codes_bytes: int = 0
    committed_chars: list[int] = field(default_factory=list)
    played_ms: int | None = None
    num_flushes_done: int = 0
    marked_chars: int = 0  # up to here in the text, marks were received
    warned: set[str] = field(default_factory=set)
    # For a resumed utterance: which responses come a second time.
    resumed: bool = False
    flushes_to_skip: int = 0
    started_again: bool = False
    ignored: bool = False  # the server has not opened it, because an earlier utterance has the same id
    # True = it was over before the server was lost, so the next server does not know it.
    unknown_to_server: bool = False

    def apply_revised(self, revised: Revised) -> None:
        """Replace the first unanswered revision, and all text before it, by what the server made of it."""
        place = next((k for k, request in enumerate(self.requests) if request.HasField("revise")), None)
        if place is None:
            return
        text = self.requests[place].revise.text[revised.text_char :]
        applied = Revise(from_char=revised.from_char, text=text)
        self.requests[: place + 1] = apply(self.requests[:place], applied)
        self.committed_chars = [chars for chars in self.committed_chars if chars <= revised.from_char]
        self.marked_chars = min(self.marked_chars, revised.from_char)

    def resume(self, voice: VoiceSelector | None) -> Resume:
        assert self.started is not None
        replay = SynthesisConfig()
        replay.CopyFrom(self.started.replay)
        if voice is not None and not replay.HasField("voice"):
            replay.voice.CopyFrom(voice)  # a recording or a description, which `replay` leaves out
        segments = [
            SegmentCodes(segment=number, codes=segment.codes(), complete=segment.complete, draw=segment.draw)
            for number, segment in sorted(self.segments.items())
        ]
        return Resume(
            replay=replay,
            checkpoint=self.started.checkpoint,
            received_samples=self.received_samples,
            received_chunks=self.received_chunks,
            segments=segments,
            committed_chars=self.committed_chars,
            played_ms=self.played_ms,
        )


def unpacked(packed: bytes, num_codebooks: int, bits: int) -> bytes:
    """Return packed codes in the layout of `SegmentCodes.codes`, which `Resume` needs."""
    frame_bytes = _frame_bytes(num_codebooks, bits)
    mask = (1 << bits) - 1
    codes = array("H")
    for at in range(0, len(packed), frame_bytes):
        frame = int.from_bytes(packed[at : at + frame_bytes], "little")
        codes.extend(frame >> shift & mask for shift in range(0, num_codebooks * bits, bits))
    if sys.byteorder == "big":
        codes.byteswap()
    return codes.tobytes()


def _frame_bytes(num_codebooks: int, bits: int) -> int:
    return -(-num_codebooks * bits // 8)


class Journal:
    """The journal of one session. It gives utterances their ids, because a second server would count from u1 again."""

    def __init__(self, voice: VoiceSelector | None) -> None:
        self._voice = voice
        self._open: dict[str, _Utterance] = {}
        self._current = ""
        self._num_ids = 0
        self._held_back: set[str] = set()  # opened after the server's GoAway
        self.server_goes_away = False
        self.finished = False

    @property
    def holds_back(self) -> bool:
        """Whether an utterance waits for another server, because the current one takes no new ones."""
        return bool(self._held_back)

    @property
    def unfinished(self) -> bool:
        """Whether an utterance is open that the caller still waits for."""
        return any(not utterance.over for utterance in self._open.values())

    @property
    def expects_response(self) -> bool:
        """Whether the current server has an utterance open, and so must send something."""
        return any(
            not (utterance.over or utterance.ignored or utterance_id in self._held_back)
            for utterance_id, utterance in self._open.items()
        )

    # Actions of the caller: each method returns the request to send now, or None.

    def text(self, utterance_id: str, text: str) -> SpeakRequest | None:
        utterance_id = utterance_id or self._current or self._new_id()
        utterance = self._open.get(utterance_id)
        if utterance is None:
            utterance = self._open[utterance_id] = _Utterance()
            self._current = utterance_id
            if self.server_goes_away:
                self._held_back.add(utterance_id)
        elif utterance.over:
            return None
        return self._record(utterance_id, SpeakRequest(utterance_id=utterance_id, text=text))

    def revise(self, utterance_id: str, revise: Revise) -> SpeakRequest | None:
        utterance_id = utterance_id or self._current
        return self._record(utterance_id, SpeakRequest(utterance_id=utterance_id, revise=revise))

    def flush(self, utterance_id: str, flush: Flush) -> SpeakRequest | None:
        utterance_id = utterance_id or self._current
        return self._record(utterance_id, SpeakRequest(utterance_id=utterance_id, flush=flush))

    def end(self, utterance_id: str) -> SpeakRequest | None:
        utterance_id = utterance_id or self._current
        self._clear_current(utterance_id)
        request = self._record(utterance_id, SpeakRequest(utterance_id=utterance_id, end=EndUtterance()))
        if utterance := self._open.get(utterance_id):
            utterance.text_ended = True
            if utterance.over:
                del self._open[utterance_id]
        return request

    def cancel(self, utterance_id: str, cancel: Cancel) -> SpeakRequest | None:
        if utterance_id == _ALL_UTTERANCES:
            ids = [*self._open]
        else:
            utterance_id = utterance_id or self._current or self._newest()
            ids = [utterance_id]
        for each in ids:
            self._clear_current(each)
            if utterance := self._open.get(each):
                utterance.cancelled = utterance.text_ended = True
                if utterance.over:
                    del self._open[each]
        return SpeakRequest(utterance_id=utterance_id, cancel=cancel)

    def playback(self, utterance_id: str, report: PlaybackReport) -> SpeakRequest:
        if utterance := self._open.get(utterance_id or next(iter(self._open), "")):
            utterance.played_ms = report.played_ms
        return SpeakRequest(utterance_id=utterance_id, playback=report)

    # Responses of the server

    def take(self, response: SpeakResponse) -> bool:
        """Enter a response, and return whether it is new: after a resume some responses come a second time."""
        payload = response.WhichOneof("payload")
        if payload == "go_away":
            self.server_goes_away = True
        utterance = self._open.get(response.utterance_id)
        if utterance is None:
            return payload not in ("committed", "alive")
        match payload:
            case "started":
                is_repeated, utterance.started_again = utterance.started_again, False
                utterance.started = response.started
                return not is_repeated
            case "audio":
                self._take_audio(utterance, response.audio)
                return len(response.audio.data) > 0  # the caller needs no codes
            case "marks":
                fresh = [mark for mark in response.marks.marks if mark.text_end > utterance.marked_chars]
                if len(fresh) < len(response.marks.marks):
                    del response.marks.marks[:]
                    response.marks.marks.extend(fresh)
                if fresh:
                    utterance.marked_chars = fresh[-1].text_end
                return bool(fresh)
            case "flush_done":
                if utterance.flushes_to_skip:
                    utterance.flushes_to_skip -= 1
                    return False
                utterance.num_flushes_done += 1
            case "revised":
                utterance.apply_revised(response.revised)
            case "committed":
                utterance.committed_chars.append(response.committed.chars)
                return False
            case "warning":
                if response.warning.code == "NO_ACTIVE_UTTERANCE" and utterance.started is None:
                    utterance.ignored = True
                is_repeated = utterance.resumed and response.warning.message in utterance.warned
                utterance.warned.add(response.warning.message)
                return not is_repeated
            case "done":
                if utterance.text_ended:
                    del self._open[response.utterance_id]
                else:
                    utterance.over = True
                    utterance.requests.clear()
                    utterance.segments.clear()
        return True

    # After a loss

    def drop_cancelled(self) -> list[SpeakResponse]:
        """Forget the cancelled utterances, because they are not resumed. Return the `done` of each that the lost server
        has not sent."""
        ids = [utterance_id for utterance_id, each in self._open.items() if each.cancelled and not each.over]
        for utterance_id in ids:
            del self._open[utterance_id]
        done = UtteranceDone(reason=FINISH_REASON_CANCELLED)
        return [SpeakResponse(utterance_id=utterance_id, done=done) for utterance_id in ids]

    def requests_to_resend(self) -> Iterator[SpeakRequest]:
        """Yield the requests that the next server needs after the config, in order."""
        self.server_goes_away = False
        self._held_back.clear()
        for utterance_id in [
            utterance_id for utterance_id, each in self._open.items() if each.over and each.text_ended
        ]:
            del self._open[utterance_id]
        for utterance_id, utterance in self._open.items():
            if utterance.over:
                utterance.unknown_to_server = True
                continue
            if utterance.started is not None:
                utterance.resumed = utterance.started_again = True
                utterance.flushes_to_skip = utterance.num_flushes_done
                yield SpeakRequest(utterance_id=utterance_id, resume=utterance.resume(self._voice))
            yield from joined(utterance.requests)

    def _take_audio(self, utterance: _Utterance, audio: AudioChunk) -> None:
        if audio.data:
            utterance.received_samples += audio.num_samples
            utterance.received_chunks += 1
        for part in audio.codes:
            segment = utterance.segments.setdefault(part.segment, _Segment())
            if part.packed and utterance.started is not None:
                started = utterance.started
                codes = _Codes(part.offset, part.packed, started.codebooks, started.code_bits)
            else:
                codes = _Codes(part.offset, part.codes, 0, 0)
            utterance.codes_bytes += codes.num_bytes
            segment.parts.append(codes)
            segment.complete = segment.complete or part.complete
            segment.draw = part.draw
        if utterance.codes_bytes > MAX_CODES_BYTES:
            utterance.segments.clear()

    def _record(self, utterance_id: str, request: SpeakRequest) -> SpeakRequest | None:
        utterance = self._open.get(utterance_id)
        if utterance is None:
            return request
        if utterance.over:
            return request if request.HasField("end") and not utterance.unknown_to_server else None
        utterance.requests.append(request)
        return None if utterance_id in self._held_back else request

    def _new_id(self) -> str:
        self._num_ids += 1
        return f"u{self._num_ids}"

    def _newest(self) -> str:
        return next((each for each, utterance in reversed(self._open.items()) if not utterance.over), "")

    def _clear_current(self, utterance_id: str) -> None:
        if utterance_id == self._current:
            self._current = ""
