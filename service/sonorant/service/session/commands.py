"""Applies the messages of a session to its utterances. Nothing here waits for audio."""

import asyncio
from collections.abc import Iterable

from sonorant.service.errors import Draining, InvalidField, LimitReached
from sonorant.service.pacing.outbox import Outbox
from sonorant.service.pacing.playout import Playout
from sonorant.service.session.turns import OpenUtterance, Turns
from sonorant.service.text.checks import slices
from sonorant.service.utterance.allowance import Allowance
from sonorant.service.utterance.requests import SpeakSpec, UtteranceSpec, check_utterance_id
from sonorant.service.utterance.resumption import Resumption
from sonorant.service.utterance.utterance import Beginning, Utterance
from sonorant.tts.v1 import speak_pb2, synthesis_pb2

MAX_OPEN_UTTERANCES = 32


class Commands:
    def __init__(
        self,
        turns: Turns,
        playout: Playout,
        outbox: Outbox[speak_pb2.SpeakResponse],
        allowance: Allowance,
    ) -> None:
        self.spec: SpeakSpec | None = None  # for new utterances; None = no config has come
        self.draining = False
        self.arrived_s: float | None = None  # when the call arrived; set while text is taken that came with it
        self._turns = turns
        self._playout = playout
        self._outbox = outbox
        self._allowance = allowance
        self._part = allowance.part
        self._current_id: str | None = None  # what "" means, until its `end` or `cancel`
        self._num_minted = 0

    async def text(self, utterance_id: str, text: str) -> None:
        check_utterance_id(utterance_id)
        wanted = utterance_id or self._current_id
        if wanted and not self._turns.takes_text(wanted):
            if self._turns.is_first_late_text(wanted):
                self._warn_inactive(wanted, "text")
            return
        entry = self._turns.get(wanted) or self._begin(wanted or self._mint())
        self._turns.change(entry, entry.utterance.accept, text)
        await self._push(entry, slices(text))

    def resume(self, utterance_id: str, spec: UtteranceSpec, resumption: Resumption) -> None:
        """Resume an utterance that another session began. Its text comes next."""
        check_utterance_id(utterance_id)
        if not utterance_id or self._turns.is_known(utterance_id):
            raise InvalidField("utterance_id", "resume an utterance under its own id, before anything else of it")
        rate_hz = spec.audio.sample_rate_hz
        if resumption.played_ms is not None:
            self._playout.sent(utterance_id, resumption.received_ms(rate_hz))
            self._playout.report(utterance_id, resumption.played_ms)
        self._begin(utterance_id, spec, resumption)

    def refuse(self, utterance_id: str, error: Exception) -> None:
        """End an utterance that cannot be resumed."""
        check_utterance_id(utterance_id)
        self._turns.stop(self._turns.get(utterance_id) or self._begin(utterance_id), error)

    async def revise(self, utterance_id: str, revise: speak_pb2.Revise) -> None:
        check_utterance_id(utterance_id)
        wanted = utterance_id or self._current_id
        entry = self._turns.get(wanted)
        if entry is None or entry.utterance.text_ended:
            self._warn_inactive(wanted, "revise")
            return
        rest: list[str] = []
        await self._part.do(self._turns.change, entry, self._revise, entry, revise, rest)
        await self._push(entry, rest)

    async def start(self) -> None:
        """Open the stream of the utterance whose turn it is now, and not some steps of the event loop later."""
        if (entry := self._turns.current) is not None:
            await self._part.do(self._turns.change, entry, entry.utterance.start)

    async def _push(self, entry: OpenUtterance, pieces: Iterable[str]) -> None:
        if entry.commit_timer is not None:
            entry.commit_timer.cancel()
        for piece in pieces:
            await self._part.do(self._turns.change, entry, entry.utterance.push, piece)
        self._commit_later(entry)

    def _revise(self, entry: OpenUtterance, revise: speak_pb2.Revise, rest: list[str]) -> None:
        revised, text = entry.utterance.revise(revise.from_char, revise.text)
        rest += slices(text)
        self._outbox.post(speak_pb2.SpeakResponse(utterance_id=entry.id, revised=revised))

    async def flush(self, utterance_id: str, flush: speak_pb2.Flush) -> None:
        check_utterance_id(utterance_id)
        wanted = utterance_id or self._current_id
        entry = self._turns.get(wanted)
        if entry is None or entry.utterance.text_ended:
            self._warn_inactive(wanted, "flush")
            return
        utterance = entry.utterance
        await self._part.do(
            self._turns.change, entry, utterance.flush, flush.flush_id, flush.pause_ms, carries_on=flush.carry_on
        )

    async def end(self, utterance_id: str) -> None:
        check_utterance_id(utterance_id)
        wanted = utterance_id or self._current_id
        if wanted == self._current_id:
            self._current_id = None
        if (entry := self._turns.get(wanted)) is None:
            self._warn_inactive(wanted, "end")
            return
        await self._part.do(self._turns.change, entry, entry.utterance.end)

    def cancel(self, utterance_id: str, cancel: speak_pb2.Cancel) -> None:
        check_utterance_id(utterance_id)
        wanted = utterance_id or self._current_id
        entry = self._turns.get(wanted) if wanted else self._turns.latest
        if entry is not None:
            wanted = entry.id
            entry.utterance.statistics.silenced(_played_ms(cancel))
        self._heard_no_more(wanted or "")
        if wanted == self._current_id:
            self._current_id = None
        if entry is None:
            self._warn_inactive(wanted, "cancel")
        else:
            self._turns.stop(entry)

    def cancel_all(self, cancel: speak_pb2.Cancel) -> None:
        self._current_id = None
        if not self._turns:
            self._warn_inactive(None, "cancel")
        played_ms = _played_ms(cancel)
        for entry in self._turns:  # the first one is in play
            entry.utterance.statistics.silenced(played_ms)
            played_ms = None
        self._heard_no_more("*")
        for entry in self._turns:
            self._turns.stop(entry)

    def report(self, utterance_id: str, played_ms: int) -> None:
        check_utterance_id(utterance_id)
        self._playout.report(utterance_id, played_ms)
        spoken = self._turns.current
        about = self._turns.get(utterance_id) if utterance_id else spoken
        if about is not None:
            about.utterance.statistics.played_ms = played_ms
        if spoken is not None:
            spoken.utterance.pacer.changed()

    async def finish(self) -> None:
        """End all open utterances' texts, as no more messages come."""
        for entry in self._turns:
            await self._part.do(self._turns.change, entry, entry.utterance.end)
        self._turns.close()

    def _heard_no_more(self, utterance_id: str) -> None:
        """Note that the client drops buffered audio, even of a done utterance, so that the next may go sooner."""
        self._playout.drop(utterance_id)
        for entry in self._turns:
            entry.utterance.pacer.changed()

    def _begin(
        self,
        utterance_id: str,
        spec: UtteranceSpec | None = None,
        resumption: Resumption | None = None,
    ) -> OpenUtterance:
        """Open an utterance; by default with the session's config."""
        assert self.spec is not None, "text comes after config"
        beginning = Beginning(
            self._playout,
            self.spec.max_lead_ms,
            self._turns.ms_per_unit,
            resumption,
            follows=self._turns.any_begun,
            arrived_s=self.arrived_s,
        )
        utterance = Utterance(utterance_id, spec or self.spec.utterance, self._allowance, beginning)
        self._current_id = utterance_id
        entry = self._turns.begin(utterance)
        if self.draining:
            self._turns.stop(entry, Draining("the server is draining: open a new session for the next utterance"))
        elif len(self._turns) > MAX_OPEN_UTTERANCES:
            limit = LimitReached("utterances", f"{MAX_OPEN_UTTERANCES} utterances are open; wait for one to be done")
            self._turns.stop(entry, limit)
        return entry

    def _mint(self) -> str:
        while True:
            self._num_minted += 1
            utterance_id = f"u{self._num_minted}"
            if not self._turns.is_known(utterance_id):
                return utterance_id

    def _commit_later(self, entry: OpenUtterance) -> None:
        """Schedule a commit for when no text has come for a while."""
        delay_s = entry.utterance.commit_delay_s
        if delay_s is None or entry.stopped:
            return
        entry.commit_timer = asyncio.get_running_loop().call_later(delay_s, self._part.post, self._commit_tail, entry)

    def _commit_tail(self, entry: OpenUtterance) -> None:
        if entry.stopped or entry.utterance.commit_delay_s is None:  # it has ended meanwhile
            return
        self._turns.change(entry, entry.utterance.commit_tail)
        if entry.utterance.spec.resumable:
            committed = speak_pb2.Committed(chars=entry.utterance.num_chars)
            self._outbox.post(speak_pb2.SpeakResponse(utterance_id=entry.id, committed=committed))

    def _warn_inactive(self, utterance_id: str | None, payload: str) -> None:
        which = f"utterance {utterance_id!r} has ended or was never opened" if utterance_id else "no utterance is open"
        warning = synthesis_pb2.Warning(code="NO_ACTIVE_UTTERANCE", message=f"{payload} was ignored: {which}")
        self._outbox.post(speak_pb2.SpeakResponse(utterance_id=utterance_id or "", warning=warning))


def _played_ms(cancel: speak_pb2.Cancel) -> int | None:
    return cancel.played_ms if cancel.HasField("played_ms") else None
