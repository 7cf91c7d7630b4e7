"""Keeps what a session must send again after the loss of its server, so that another one continues where that stopped.

Pure: it sees each request before it goes out and each response as it comes in, and does no I/O. It holds the text of
the open utterances, which the server limits, and their codes, up to a limit of its own.
"""

from collections.abc import Iterator

from google.rpc import code_pb2

from sonorant.client.speaking.heard import MIN_CHARS, MS_PER_CHAR
from sonorant.client.speaking.kept_utterance import KeptUtterance
from sonorant.client.speaking.texts import joined
from sonorant.tts.v1.speak_pb2 import (
    Cancel,
    EndUtterance,
    Flush,
    PlaybackReport,
    Revise,
    SpeakConfig,
    SpeakRequest,
    SpeakResponse,
)
from sonorant.tts.v1.synthesis_pb2 import FINISH_REASON_COMPLETED, FINISH_REASON_FAILED, UtteranceDone

MAX_OPEN_UTTERANCES = 32  # per session, as in the contract
MAX_GIVEN_UP = 20  # so often in a row, without audio between, an utterance is tried elsewhere
_ALL_UTTERANCES = "*"
_HEARD = ("started", "audio", "marks", "flush_done")  # what a caller who has cancelled wants no more of


class Journal:
    """The journal of one session. It gives utterances their ids, because a second server would count from u1 again."""

    def __init__(self, config: SpeakConfig | None = None) -> None:
        """`config`: with which calls begin; a later one may be set as `config`."""
        self._first_config = self._sent_config = self.config = config or SpeakConfig()
        self._open: dict[str, KeptUtterance] = {}
        self._current = ""
        self._num_ids = 0
        self._held_back: set[str] = set()  # opened after the server's GoAway
        self._ms_per_char = MS_PER_CHAR
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

    def must_wait(self, utterance_id: str) -> bool:
        """Return whether a text would open one utterance more than a session may have."""
        is_new = (utterance_id or self._current) not in self._open
        return is_new and sum(not utterance.over for utterance in self._open.values()) >= MAX_OPEN_UTTERANCES

    # Actions of the caller: each method returns the request to send now, or None.

    def enter(
        self, request: SpeakRequest, config: SpeakConfig | None = None, unheard_ms: float = 0.0
    ) -> SpeakRequest | None:
        """Enter any request but a config or `resume`; `config`: see `text`; `unheard_ms`: see `cancel`."""
        utterance_id = request.utterance_id
        match request.WhichOneof("payload"):
            case "text":
                return self.text(utterance_id, request.text, config)
            case "revise":
                return self.revise(utterance_id, request.revise)
            case "flush":
                return self.flush(utterance_id, request.flush)
            case "end":
                return self.end(utterance_id)
            case "cancel":
                return self.cancel(utterance_id, request.cancel, unheard_ms)
            case "playback":
                return self.playback(utterance_id, request.playback)
            case other:
                raise ValueError(f"a session does not send {other}")

    def text(self, utterance_id: str, text: str, config: SpeakConfig | None = None) -> SpeakRequest | None:
        """`config`: of the utterance that the text opens, in place of `self.config`. Call `config_to_send` next."""
        utterance_id = utterance_id or self._current or self._new_id()
        utterance = self._open.get(utterance_id)
        if utterance is None:
            utterance = self._open[utterance_id] = KeptUtterance(config or self.config)
            self._current = utterance_id
            if self.server_goes_away:
                self._held_back.add(utterance_id)
        elif utterance.over:
            return None
        return self._record(utterance_id, SpeakRequest(utterance_id=utterance_id, text=text))

    def opening(self, utterance_id: str, text: str, *, end: bool) -> list[SpeakRequest]:
        """Return the requests that go with the config: the first text, unless it is empty, and its end."""
        requests = [self.text(utterance_id, text) if text else None, self.end(utterance_id) if end else None]
        return [request for request in requests if request is not None]

    def config_to_send(self, request: SpeakRequest) -> SpeakRequest | None:
        """Return the config that the server must get before this request, if it does not have it."""
        utterance = self._open.get(request.utterance_id)
        if utterance is None or utterance.config == self._sent_config or len(utterance.requests) > 1:
            return None
        self._sent_config = utterance.config
        return SpeakRequest(config=utterance.config)

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

    def cancel(self, utterance_id: str, cancel: Cancel, unheard_ms: float = 0.0) -> SpeakRequest | None:
        """`unheard_ms`: how much of the audio received the listener has not heard yet, by the clock. The server does
        not know utterances that are held back; `drop_cancelled` has their `done`."""
        if utterance_id == _ALL_UTTERANCES:
            ids = [*self._open]
        else:
            utterance_id = utterance_id or self._current or self._newest()
            ids = [utterance_id]
        played_ms = cancel.played_ms if cancel.HasField("played_ms") else None
        for each in ids:
            self._clear_current(each)
            utterance = self._open.get(each)
            if utterance is None or utterance.cancelled:
                continue
            utterance.text_ended = True
            if utterance.over:
                del self._open[each]
                continue
            utterance.heard_ms = max(0.0, utterance.received_ms - unheard_ms)
            if played_ms is not None:  # with "*", it is about the first one, which is playing
                utterance.heard_ms, utterance.played_ms, played_ms = float(played_ms), played_ms, None
        if utterance_id in self._held_back:
            return None
        return SpeakRequest(utterance_id=utterance_id, cancel=cancel)

    def playback(self, utterance_id: str, report: PlaybackReport) -> SpeakRequest:
        if utterance := self._open.get(utterance_id or next(iter(self._open), "")):
            utterance.played_ms = report.played_ms
        return SpeakRequest(utterance_id=utterance_id, playback=report)

    # Responses of the server

    def gives_up(self, response: SpeakResponse) -> bool:
        """Return whether the server gives an utterance up that another one, or the same one later, can speak: it goes
        away, or its engine is down."""
        utterance = self._open.get(response.utterance_id)
        if utterance is None or utterance.over or utterance.cancelled or not response.HasField("done"):
            return False
        if response.done.reason != FINISH_REASON_FAILED or response.done.error.code != code_pb2.UNAVAILABLE:
            return False
        return utterance.num_given_up < MAX_GIVEN_UP

    def hold_back(self, utterance_id: str) -> None:
        """Keep an utterance that the server has given up for another server."""
        self._open[utterance_id].num_given_up += 1
        self._held_back.add(utterance_id)

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
                if is_repeated:
                    return False
            case "audio":
                utterance.take_audio(response.audio)
                if not response.audio.data:
                    return False  # the caller needs no codes
            case "marks":
                if not utterance.take_marks(response.marks):
                    return False
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
                self._done(response.utterance_id, utterance, response.done)
        return not (utterance.cancelled and payload in _HEARD)

    def _done(self, utterance_id: str, utterance: KeptUtterance, done: UtteranceDone) -> None:
        if done.reason == FINISH_REASON_COMPLETED and len(text := utterance.text) >= MIN_CHARS:
            self._ms_per_char = utterance.received_ms / len(text) or MS_PER_CHAR
        if utterance.text_ended:
            del self._open[utterance_id]
        else:
            utterance.over = True
            utterance.requests.clear()
            utterance.segments.clear()

    # Without a server

    def drop_cancelled(self, *, is_lost: bool) -> list[SpeakResponse]:
        """Forget the cancelled utterances of which no server knows; with `is_lost`, as their server is lost, these are
        all. Return the `done` of each."""
        cancelled = {
            utterance_id: each
            for utterance_id, each in self._open.items()
            if each.cancelled and (is_lost or utterance_id in self._held_back)
        }
        for utterance_id in cancelled:
            del self._open[utterance_id]
            self._held_back.discard(utterance_id)
        return [
            SpeakResponse(utterance_id=utterance_id, done=utterance.cancelled_done(self._ms_per_char))
            for utterance_id, utterance in cancelled.items()
            if not utterance.over
        ]

    def requests_to_resend(self) -> Iterator[SpeakRequest]:
        """Yield the requests that the next server needs after the config, in order."""
        self.server_goes_away = False
        self._held_back.clear()
        self._sent_config = self._first_config
        for utterance_id in [
            utterance_id for utterance_id, each in self._open.items() if each.over and each.text_ended
        ]:
            del self._open[utterance_id]
        for utterance_id, utterance in self._open.items():
            if utterance.over:
                utterance.unknown_to_server = True
                continue
            if utterance.config != self._sent_config:
                self._sent_config = utterance.config
                yield SpeakRequest(config=utterance.config)
            if utterance.started is not None:
                utterance.resumed = utterance.started_again = True
                utterance.flushes_to_skip = utterance.num_flushes_done
                yield SpeakRequest(utterance_id=utterance_id, resume=utterance.resume())
            yield from joined(utterance.requests)

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
